/* Properties of records as columns: a map, and a column for each name that has one.
 *
 *   KEYS 01 k1 02 TAGS 01 a 02 | TAGS 01 b | ...     properties of records; the last 02 of each may be missing
 *
 *   rows     0 2 3                                   a map in Arrow's format: the offsets of the entries of each row,
 *   names    KEYS TAGS TAGS   0 4 8 12               joined texts, and their offsets
 *   values   k1 a b           0 2 3 4
 *
 * A row is irregular when its separators do not alternate, when it is not UTF-8, or when it has too many entries. Then
 * only a flag
 * is returned, and Python decodes such rows one by one.
 */

#include "columns.h"

/* All results of the rows. */
typedef struct {
    Span buffer, names[MOST_NAMES];
    int name_count;
    bool with_map;
    Texts columns[MOST_NAMES];
    Maps maps;
    Sheet irregular;
    Py_ssize_t irregular_count;
} Table;

/* Names usually differ in their first letter, so most comparisons end there. They are not empty. */
static bool is_name(Span name, Span other) { return name.size == other.size && *name.at == *other.at && span_is(name, other); }

/* Of equal names, the position of the first and the value of the last count. An empty name or value is ignored. */
static bool add_entry(Row *row, Span name, Span value) {
    if (!name.size || !value.size) return true;
    for (int at = 0; at < row->count; at++)
        if (is_name(row->entries[at].name, name)) {
            row->entries[at].value = value;
            return true;
        }
    if (row->count == MOST_ENTRIES) return false;
    row->entries[row->count++] = (Entry){name, value};
    return true;
}

#define ALL_BYTES(value) (UINT64_C(0x0101010101010101) * (value))

/* Zero if none of eight bytes is 0x00, 0x01 or 0x02. Otherwise, in little-endian order, the lowest set bit is in the
   first such byte. */
static uint64_t small_bytes(uint64_t word) { return (word - ALL_BYTES(3)) & ~word & ALL_BYTES(0x80); }

/* The next separator from `at` on, or the end; `seen` collects all bytes before it. */
static const byte *next_separator(const byte *at, const byte *end, uint64_t *seen) {
    uint64_t word;
    for (; end - at >= 8; at += 8) {
        memcpy(&word, at, sizeof word);
        const uint64_t small = small_bytes(word);
        *seen |= word;
        if (!small) continue;
#if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        at += __builtin_ctzll(small) / 8;
#endif
        break;
    }
    while (at < end && (*at > 2 || !*at)) *seen |= *at++;
    return at;
}

bool read_row(Row *row, Span text) {
    const byte *begin = text.at, *end = text.at + text.size;
    uint64_t seen = 0;
    Span name = {NULL, 0};
    row->count = 0;
    for (const byte *at = begin; (at = next_separator(at, end, &seen)) < end; begin = ++at) {
        if ((*at == 1) == (name.at != NULL)) return false;
        if (*at == 1) {
            name = (Span){begin, at - begin};
        } else {
            if (!add_entry(row, name, (Span){begin, at - begin})) return false;
            name.at = NULL;
        }
    }
    if (begin < end || name.at) { /* the last separator is missing */
        if (!name.at || !add_entry(row, name, (Span){begin, end - begin})) return false;
    }
    return !(seen & ALL_BYTES(0x80)) || is_utf8(text);
}

Span value_of(const Row *row, Span name) {
    for (int at = 0; at < row->count; at++)
        if (is_name(row->entries[at].name, name)) return row->entries[at].value;
    return (Span){NULL, 0};
}

static void add_row(Table *table, Span text) {
    Row row;
    const byte *end = table->buffer.at + table->buffer.size;
    const bool is_irregular = !read_row(&row, text);
    table->irregular.data[table->irregular.used++] = is_irregular;
    table->irregular_count += is_irregular;
    if (table->irregular_count) return; /* the other results are not used */
    for (int at = 0; at < table->name_count; at++) put_value(&table->columns[at], value_of(&row, table->names[at]), end);
    if (table->with_map) put_map(&table->maps, &row, end);
}

static bool open_table(Table *table, Py_ssize_t rows, Py_ssize_t bytes) {
    if (!open_sheet(&table->irregular, rows)) return false;
    for (int at = 0; at < table->name_count; at++)
        if (!open_texts(&table->columns[at], rows, bytes, true)) return false;
    return !table->with_map || open_maps(&table->maps, rows, bytes);
}

static void close_table(Table *table) {
    for (int at = 0; at < MOST_NAMES; at++) close_texts(&table->columns[at]);
    close_maps(&table->maps);
    Py_CLEAR(table->irregular.object);
}

PyObject *given_columns(Texts *columns, int count) {
    PyObject *given = PyTuple_New(count);
    for (int at = 0; given && at < count; at++) {
        PyObject *column = given_texts(&columns[at]);
        if (!column)
            Py_CLEAR(given);
        else
            PyTuple_SetItem(given, at, column);
    }
    return given;
}

static PyObject *given_table(Table *table) {
    if (table->irregular_count) return packed(given_sheet(&table->irregular), Py_NewRef(Py_None), Py_NewRef(Py_None));
    PyObject *map = table->with_map ? given_maps(&table->maps) : Py_NewRef(Py_None);
    return packed(Py_NewRef(Py_None), map, given_columns(table->columns, table->name_count));
}

int read_names(PyObject *given, Span names[MOST_NAMES]) {
    if (!PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "names must be a tuple");
        return -1;
    }
    const Py_ssize_t count = PyTuple_Size(given);
    if (count > MOST_NAMES) {
        PyErr_Format(PyExc_ValueError, "at most %d names are allowed", MOST_NAMES);
        return -1;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        if (!span_of_bytes(PyTuple_GetItem(given, at), &names[at])) return -1;
        if (!names[at].size) {
            PyErr_SetString(PyExc_ValueError, "a name must not be empty");
            return -1;
        }
    }
    return (int)count;
}

/* Rows from `starts` to `ends`, positions in the buffer; false, with an error set, if one is outside of it. */
static bool read_rows(Table *table, const Py_buffer *starts, const Py_buffer *ends) {
    const Py_ssize_t rows = starts->len / (Py_ssize_t)sizeof(int64_t);
    int64_t before = 0, bytes = 0;
    bool fits = starts->len == ends->len && starts->len % (Py_ssize_t)sizeof(int64_t) == 0 && table->buffer.size <= INT32_MAX;
    for (Py_ssize_t row = 0; fits && row < rows; row++) {
        const int64_t start = number_at(starts, row), end = number_at(ends, row);
        fits = before <= start && start <= end && end <= table->buffer.size;
        bytes += end - start;
        before = end;
    }
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "rows must be pairs of ascending positions in a buffer of less than 2 GiB");
        return false;
    }
    if (!open_table(table, rows, (Py_ssize_t)bytes)) return false;
    for (Py_ssize_t row = 0; row < rows; row++) {
        const int64_t start = number_at(starts, row);
        add_row(table, (Span){table->buffer.at + start, (Py_ssize_t)(number_at(ends, row) - start)});
    }
    return true;
}

/* (buffer, starts, ends, names, with_map) -> (irregular rows or None, map or None, a column for each name) */
PyObject *read_properties(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    Table table = {0};
    Py_buffer buffer, starts, ends;
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "read_properties takes 5 arguments");
        return NULL;
    }
    const int with_map = PyObject_IsTrue(arguments[4]);
    if (with_map < 0 || (table.name_count = read_names(arguments[3], table.names)) < 0) return NULL;
    table.with_map = with_map;
    if (PyObject_GetBuffer(arguments[0], &buffer, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *given = NULL;
    if (PyObject_GetBuffer(arguments[1], &starts, PyBUF_SIMPLE) == 0) {
        if (PyObject_GetBuffer(arguments[2], &ends, PyBUF_SIMPLE) == 0) {
            table.buffer = (Span){buffer.buf, buffer.len};
            if (read_rows(&table, &starts, &ends)) given = given_table(&table);
            PyBuffer_Release(&ends);
        }
        PyBuffer_Release(&starts);
    }
    PyBuffer_Release(&buffer);
    close_table(&table);
    return given;
}


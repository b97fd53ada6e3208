/* Records as columns, for whoever reads millions of them: where each begins, and what stands in its properties.
 *
 *   KEYS 01 k1 02 TAGS 01 a 02 | TAGS 01 b | ...     properties of records; the last 02 of each may be missing
 *
 *   rows     0 2 3                                   a map as Arrow lays it out: where the entries of each row begin,
 *   names    KEYS TAGS TAGS   0 4 8 12               texts back to back, and where each of them begins
 *   values   k1 a b           0 2 3 4
 *
 * A row is odd when its separators do not take turns, when it is not UTF-8, or when it has more entries than anybody gives. Then
 * only that is told, and Python decodes such rows one by one.
 *
 * Everything that is made has its room from the start, as much as the rows can fill: what a row gives is never longer than it is,
 * and an entry takes four bytes at least.
 */

#include "turn.h"

enum { MOST_ENTRIES = 64, MOST_NAMES = 8, SMALLEST_ENTRY = 4, STEP = 16 };

typedef struct {
    Span name, value;
} Entry;

typedef struct {
    Entry entries[MOST_ENTRIES];
    int count;
} Row;

/* A bytearray that is being written: it can be cut to what was used, and nobody copies it. */
typedef struct {
    PyObject *object;
    byte *data;
    Py_ssize_t used;
} Sheet;

/* Texts back to back, where each begins, and, unless it has no room, a bit for each that is there. */
typedef struct {
    Sheet data, offsets, bits;
    Py_ssize_t count, missing;
} Texts;

/* All that is made of the rows. */
typedef struct {
    Span buffer, names[MOST_NAMES];
    int name_count;
    bool with_map;
    Texts columns[MOST_NAMES], map_names, map_values;
    Sheet odd, firsts;
    Py_ssize_t odd_count;
} Table;

static bool open_sheet(Sheet *sheet, Py_ssize_t room) {
    sheet->object = PyByteArray_FromStringAndSize(NULL, room);
    sheet->data = sheet->object ? (byte *)PyByteArray_AsString(sheet->object) : NULL;
    return sheet->object != NULL;
}

/* The bytes that were written; the sheet is empty afterwards. */
static PyObject *given_sheet(Sheet *sheet) {
    PyObject *object = sheet->object;
    sheet->object = NULL;
    if (object && PyByteArray_Resize(object, sheet->used) < 0) Py_CLEAR(object);
    return object;
}

static void put_offset(Sheet *sheet, Py_ssize_t place) {
    const int32_t number = (int32_t)place;
    memcpy(sheet->data + sheet->used, &number, sizeof number);
    sheet->used += (Py_ssize_t)sizeof number;
}

static bool open_texts(Texts *texts, Py_ssize_t count, Py_ssize_t bytes, bool with_bits) {
    if (!open_sheet(&texts->data, bytes + STEP) || !open_sheet(&texts->offsets, (count + 1) * (Py_ssize_t)sizeof(int32_t)))
        return false;
    put_offset(&texts->offsets, 0);
    if (!with_bits) return true;
    if (!open_sheet(&texts->bits, (count + 7) / 8)) return false;
    texts->bits.used = (count + 7) / 8;
    memset(texts->bits.data, 0, (size_t)texts->bits.used);
    return true;
}

static void close_texts(Texts *texts) {
    Py_CLEAR(texts->data.object);
    Py_CLEAR(texts->offsets.object);
    Py_CLEAR(texts->bits.object);
}

/* Short texts are copied as one step of a fixed size, where there is as much to read behind them; what is too much is written over. */
static void put_text(Texts *texts, Span text, const byte *readable_end) {
    byte *to = texts->data.data + texts->data.used;
    if (text.size <= STEP && readable_end - text.at >= STEP)
        memcpy(to, text.at, STEP);
    else
        memcpy(to, text.at, (size_t)text.size);
    texts->data.used += text.size;
    put_offset(&texts->offsets, texts->data.used);
    texts->count++;
}

static void put_value(Texts *texts, Span text, const byte *readable_end) {
    if (text.at) {
        texts->bits.data[texts->count / 8] |= (byte)(1 << texts->count % 8);
        put_text(texts, text, readable_end);
        return;
    }
    put_offset(&texts->offsets, texts->data.used);
    texts->missing++;
    texts->count++;
}

static PyObject *packed(PyObject *first, PyObject *second, PyObject *third) {
    PyObject *given = first && second && third ? PyTuple_Pack(3, first, second, third) : NULL;
    Py_XDECREF(first);
    Py_XDECREF(second);
    Py_XDECREF(third);
    return given;
}

static PyObject *given_texts(Texts *texts) {
    PyObject *bits = texts->missing ? given_sheet(&texts->bits) : Py_NewRef(Py_None);
    return packed(bits, given_sheet(&texts->offsets), given_sheet(&texts->data));
}

/* Of equal names the first one's place and the last one's value count. An empty name or value counts for nothing. */
static bool add_entry(Row *row, Span name, Span value) {
    if (!name.size || !value.size) return true;
    for (int at = 0; at < row->count; at++)
        if (span_is(row->entries[at].name, name)) {
            row->entries[at].value = value;
            return true;
        }
    if (row->count == MOST_ENTRIES) return false;
    row->entries[row->count++] = (Entry){name, value};
    return true;
}

#define ALL_BYTES(value) (UINT64_C(0x0101010101010101) * (value))

/* Whether none of eight bytes is 0x00, 0x01 or 0x02. */
static bool has_no_separator(uint64_t word) { return !((word - ALL_BYTES(3)) & ~word & ALL_BYTES(0x80)); }

/* False when it is odd. */
static bool read_row(Row *row, Span text) {
    const byte *begin = text.at, *at = text.at, *end = text.at + text.size;
    uint64_t word, seen = 0;
    Span name = {NULL, 0};
    row->count = 0;
    while (at < end) {
        for (; end - at >= 8; at += 8) {
            memcpy(&word, at, sizeof word);
            if (!has_no_separator(word)) break;
            seen |= word;
        }
        while (at < end && (*at > 2 || !*at)) seen |= *at++;
        if (at == end) break;
        if ((*at == 1) == (name.at != NULL)) return false;
        if (*at == 1) {
            name = (Span){begin, at - begin};
        } else {
            if (!add_entry(row, name, (Span){begin, at - begin})) return false;
            name.at = NULL;
        }
        begin = ++at;
    }
    if (begin < end || name.at) { /* the last separator is missing */
        if (!name.at || !add_entry(row, name, (Span){begin, end - begin})) return false;
    }
    return !(seen & ALL_BYTES(0x80)) || is_utf8(text);
}

static Span value_of(const Row *row, Span name) {
    for (int at = 0; at < row->count; at++)
        if (span_is(row->entries[at].name, name)) return row->entries[at].value;
    return (Span){NULL, 0};
}

static void add_row(Table *table, Span text) {
    Row row;
    const byte *end = table->buffer.at + table->buffer.size;
    const bool is_odd = !read_row(&row, text);
    table->odd.data[table->odd.used++] = is_odd;
    table->odd_count += is_odd;
    if (table->odd_count) return; /* nothing else will be given */
    for (int at = 0; at < table->name_count; at++) put_value(&table->columns[at], value_of(&row, table->names[at]), end);
    if (!table->with_map) return;
    for (int at = 0; at < row.count; at++) {
        put_text(&table->map_names, row.entries[at].name, end);
        put_text(&table->map_values, row.entries[at].value, end);
    }
    put_offset(&table->firsts, table->map_names.count);
}

static bool open_table(Table *table, Py_ssize_t rows, Py_ssize_t bytes) {
    if (!open_sheet(&table->odd, rows)) return false;
    for (int at = 0; at < table->name_count; at++)
        if (!open_texts(&table->columns[at], rows, bytes, true)) return false;
    if (!table->with_map) return true;
    /* the last entry of a row may be one byte shorter */
    const Py_ssize_t entries = (bytes + rows) / SMALLEST_ENTRY;
    if (!open_texts(&table->map_names, entries, bytes, false) || !open_texts(&table->map_values, entries, bytes, false))
        return false;
    if (!open_sheet(&table->firsts, (rows + 1) * (Py_ssize_t)sizeof(int32_t))) return false;
    put_offset(&table->firsts, 0);
    return true;
}

static void close_table(Table *table) {
    for (int at = 0; at < MOST_NAMES; at++) close_texts(&table->columns[at]);
    close_texts(&table->map_names);
    close_texts(&table->map_values);
    Py_CLEAR(table->odd.object);
    Py_CLEAR(table->firsts.object);
}

static PyObject *given_columns(Table *table) {
    PyObject *columns = PyTuple_New(table->name_count);
    for (int at = 0; columns && at < table->name_count; at++) {
        PyObject *column = given_texts(&table->columns[at]);
        if (!column)
            Py_CLEAR(columns);
        else
            PyTuple_SetItem(columns, at, column);
    }
    return columns;
}

static PyObject *given_table(Table *table) {
    if (table->odd_count) return packed(given_sheet(&table->odd), Py_NewRef(Py_None), Py_NewRef(Py_None));
    PyObject *map = Py_NewRef(Py_None);
    if (table->with_map) {
        Py_DECREF(map);
        map = packed(given_sheet(&table->firsts), given_texts(&table->map_names), given_texts(&table->map_values));
    }
    return packed(Py_NewRef(Py_None), map, given_columns(table));
}

static bool read_names(Table *table, PyObject *names) {
    const Py_ssize_t count = PyTuple_Size(names);
    if (count < 0) return false;
    if (count > MOST_NAMES) {
        PyErr_Format(PyExc_ValueError, "at most %d names", MOST_NAMES);
        return false;
    }
    table->name_count = (int)count;
    for (int at = 0; at < table->name_count; at++)
        if (!span_of_bytes(PyTuple_GetItem(names, at), &table->names[at])) return false;
    return true;
}

static int64_t number_at(const Py_buffer *numbers, Py_ssize_t at) {
    int64_t number;
    memcpy(&number, (const byte *)numbers->buf + at * (Py_ssize_t)sizeof number, sizeof number);
    return number;
}

/* Rows from `starts` to `ends`, places in the buffer; false, with an error set, for any that is not in it. */
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
        PyErr_SetString(PyExc_ValueError, "rows are pairs of places that rise, in a buffer of less than 2 GiB");
        return false;
    }
    if (!open_table(table, rows, (Py_ssize_t)bytes)) return false;
    for (Py_ssize_t row = 0; row < rows; row++) {
        const int64_t start = number_at(starts, row);
        add_row(table, (Span){table->buffer.at + start, (Py_ssize_t)(number_at(ends, row) - start)});
    }
    return true;
}

/* (buffer, starts, ends, names, with_map) -> (odd rows or None, map or None, a column for each name) */
PyObject *read_properties(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    Table table = {0};
    Py_buffer buffer, starts, ends;
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "read_properties takes 5 arguments");
        return NULL;
    }
    const int with_map = PyObject_IsTrue(arguments[4]);
    if (with_map < 0 || !read_names(&table, arguments[3])) return NULL;
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

/* Rows from `starts` to `ends`, back to back; false, with an error set, for any that is not in the buffer, or when they are too many. */
static bool gather_rows(Span buffer, const Py_buffer *starts, const Py_buffer *ends, Sheet *offsets, Sheet *data) {
    const Py_ssize_t rows = starts->len / (Py_ssize_t)sizeof(int64_t);
    int64_t bytes = 0;
    bool fits = starts->len == ends->len && starts->len % (Py_ssize_t)sizeof(int64_t) == 0;
    for (Py_ssize_t row = 0; fits && row < rows; row++) {
        const int64_t start = number_at(starts, row), end = number_at(ends, row);
        fits = 0 <= start && start <= end && end <= buffer.size && end - start <= INT32_MAX - bytes;
        if (fits) bytes += end - start;
    }
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "rows are pairs of places in the buffer, of less than 2 GiB in all");
        return false;
    }
    if (!open_sheet(offsets, (rows + 1) * (Py_ssize_t)sizeof(int32_t)) || !open_sheet(data, (Py_ssize_t)bytes)) return false;
    put_offset(offsets, 0);
    for (Py_ssize_t row = 0; row < rows; row++) {
        const int64_t start = number_at(starts, row);
        const size_t size = (size_t)(number_at(ends, row) - start);
        if (size) memcpy(data->data + data->used, buffer.at + start, size);
        data->used += (Py_ssize_t)size;
        put_offset(offsets, data->used);
    }
    return true;
}

/* (buffer, starts, ends) -> (where each row begins, as 32-bit numbers; the rows) */
PyObject *gather(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    Py_buffer buffer, starts, ends;
    Sheet offsets = {0}, data = {0};
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "gather takes 3 arguments");
        return NULL;
    }
    if (PyObject_GetBuffer(arguments[0], &buffer, PyBUF_SIMPLE) < 0) return NULL;
    bool done = false;
    if (PyObject_GetBuffer(arguments[1], &starts, PyBUF_SIMPLE) == 0) {
        if (PyObject_GetBuffer(arguments[2], &ends, PyBUF_SIMPLE) == 0) {
            done = gather_rows((Span){buffer.buf, buffer.len}, &starts, &ends, &offsets, &data);
            PyBuffer_Release(&ends);
        }
        PyBuffer_Release(&starts);
    }
    PyBuffer_Release(&buffer);
    PyObject *given = done ? PyTuple_Pack(2, offsets.object, data.object) : NULL;
    Py_XDECREF(offsets.object);
    Py_XDECREF(data.object);
    return given;
}

/* (buffer, smallest) -> where records begin, as 64-bit numbers; None when they do not fill the buffer exactly */
PyObject *record_starts(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    Py_buffer buffer;
    Out starts = {0};
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "record_starts takes 2 arguments");
        return NULL;
    }
    const int64_t smallest = PyLong_AsLongLong(arguments[1]);
    if ((smallest == -1 && PyErr_Occurred()) || PyObject_GetBuffer(arguments[0], &buffer, PyBUF_SIMPLE) < 0) return NULL;
    int64_t at = 0;
    while (buffer.len - at >= 4) {
        const int64_t size = get32((const byte *)buffer.buf + at);
        if (size < smallest || size < 4 || size > buffer.len - at) break;
        out_put(&starts, (const byte *)&at, sizeof at);
        at += size;
    }
    PyObject *given = at != buffer.len ? Py_NewRef(Py_None) : starts.failed ? NULL : out_bytes(&starts);
    PyBuffer_Release(&buffer);
    out_free(&starts);
    return given;
}

/* Whole records as columns in one pass: the head, body, topic and properties of each, while it is in the cache.
 *
 *   | head | body | topic | properties | head | body | ...          records of one queue, as a pull returned them
 *      │      │       │          └──► a column for each name, and the map
 *      │      │       └──► the same for all
 *      │      └──► joined bodies
 *      └──► numbers
 *
 * This serves regular buffers: records of version 1 with IPv4 hosts, of one topic, all of them requested. Any other
 * buffer is left
 * to Python, which separates regular from irregular records and raises the exact error.
 */

#include "columns.h"

#define MOST_MS (INT64_MAX / 1000)

enum { ID_DIGITS = 32, NUMBERS = 5 };
enum { WITH_VALUES = 1, WITH_NUMBERS = 2, WITH_TEXTS = 4, WITH_MAP = 8, CHECK_BODIES = 16 };

/* The positions of the parts of a record. */
typedef struct {
    const RecordHead *head;
    Span body, topic, properties;
} Parts;

/* The results. If a record lacks the first of the names, its offset id is used. */
typedef struct {
    Span buffer, topic, names[MOST_NAMES];
    int64_t first, end; /* the wanted offsets */
    uint32_t irregular_flags;
    long wanted;
    int name_count;
    Py_ssize_t rows, most;
    Texts values, columns[MOST_NAMES];
    Sheet numbers[NUMBERS];
    Maps maps;
} Reading;

static const int number_bytes[NUMBERS] = {4, 8, 8, 8, 4};

/* False if it is not a regular record with a wanted offset. */
static bool find_parts(const Reading *reading, const byte *at, int64_t size, Parts *parts) {
    const RecordHead *head = (const RecordHead *)at;
    const int64_t offset = (int64_t)get64(head->queue_offset), body_bytes = get32(head->body_size);
    if (get32(head->magic) != MAGIC_V1 || get32(head->sys_flag) & reading->irregular_flags) return false;
    if (offset < reading->first || offset >= reading->end || body_bytes > size - SMALLEST_RECORD) return false;
    const byte *topic = at + RECORD_HEAD + body_bytes + 1, *end = at + size;
    if (topic[-1] > end - topic - 2) return false;
    const byte *properties = topic + topic[-1] + 2;
    if ((int64_t)get16(properties - 2) != end - properties) return false;
    *parts = (Parts){head, {at + RECORD_HEAD, (Py_ssize_t)body_bytes}, {topic, topic[-1]}, {properties, end - properties}};
    return true;
}

static void put_number(Sheet *sheet, const void *number, int bytes) {
    memcpy(sheet->data + sheet->used, number, (size_t)bytes);
    sheet->used += bytes;
}

/* Microseconds; times out of range become the smallest or largest one. */
static int64_t micros(int64_t ms) { return (ms > MOST_MS ? MOST_MS : ms < -MOST_MS ? -MOST_MS : ms) * 1000; }

static void put_numbers(Reading *reading, const RecordHead *head) {
    const uint32_t queue_id = get32(head->queue_id), times = get32(head->reconsume_times);
    const uint64_t offset = get64(head->queue_offset);
    const int64_t born = micros((int64_t)get64(head->born_ms)), stored = micros((int64_t)get64(head->store_ms));
    const void *numbers[NUMBERS] = {&queue_id, &offset, &born, &stored, &times};
    for (int at = 0; at < NUMBERS; at++) put_number(&reading->numbers[at], numbers[at], number_bytes[at]);
}

/* The offset id of a record: its host and its log offset, in hex. */
static void put_broker_id(Texts *texts, const RecordHead *head) {
    byte digits[ID_DIGITS];
    for (int at = 0; at < 16; at++) {
        const byte octet = at < 8 ? head->store_host[at] : head->log_offset[at - 8];
        digits[2 * at] = (byte) "0123456789ABCDEF"[octet >> 4];
        digits[2 * at + 1] = (byte) "0123456789ABCDEF"[octet & 15];
    }
    put_value(texts, (Span){digits, ID_DIGITS}, digits + ID_DIGITS);
}

/* False if they are irregular. */
static bool put_properties(Reading *reading, const Parts *parts) {
    Row row;
    const byte *end = reading->buffer.at + reading->buffer.size;
    if (!read_row(&row, parts->properties)) return false;
    if (reading->wanted & WITH_TEXTS)
        for (int at = 0; at < reading->name_count; at++) {
            const Span value = value_of(&row, reading->names[at]);
            if (!at && !value.at)
                put_broker_id(&reading->columns[at], parts->head);
            else
                put_value(&reading->columns[at], value, end);
        }
    if (reading->wanted & WITH_MAP) put_map(&reading->maps, &row, end);
    return true;
}

/* False if this record is irregular. */
static bool put_record_parts(Reading *reading, const Parts *parts) {
    if (!reading->rows) {
        reading->topic = parts->topic;
        if (!is_ascii(parts->topic)) return false;
    }
    if (!span_is(parts->topic, reading->topic) || reading->rows == reading->most) return false;
    if (reading->wanted & CHECK_BODIES && (crc_of(parts->body) & CRC_MASK) != get32(parts->head->body_crc)) return false;
    if (reading->wanted & WITH_NUMBERS) put_numbers(reading, parts->head);
    if (reading->wanted & WITH_VALUES) put_text(&reading->values, parts->body, reading->buffer.at + reading->buffer.size);
    if (reading->wanted & (WITH_TEXTS | WITH_MAP) && !put_properties(reading, parts)) return false;
    reading->rows++;
    return true;
}

/* False if any record in the buffer is irregular. */
static bool read_all(Reading *reading) {
    const byte *at = reading->buffer.at, *end = at + reading->buffer.size;
    while (at < end) {
        Parts parts;
        if (end - at < SMALLEST_RECORD) return false;
        const int64_t size = get32(at);
        if (size < SMALLEST_RECORD || size > end - at) return false;
        PREFETCH(at + size); /* prefetch the next head while this record is copied */
        PREFETCH(at + size + RECORD_HEAD - 1);
        if (!find_parts(reading, at, size, &parts) || !put_record_parts(reading, &parts)) return false;
        at += size;
    }
    return reading->rows > 0;
}

/* No text is longer than its record; the same is true for ids. */
static bool open_reading(Reading *reading) {
    const Py_ssize_t bytes = reading->buffer.size, fit = bytes / SMALLEST_RECORD;
    const int64_t offsets = reading->end - reading->first;
    reading->most = offsets < fit ? (Py_ssize_t)offsets : fit;
    if (reading->wanted & WITH_VALUES && !open_texts(&reading->values, reading->most, bytes, false)) return false;
    for (int at = 0; reading->wanted & WITH_NUMBERS && at < NUMBERS; at++)
        if (!open_sheet(&reading->numbers[at], reading->most * number_bytes[at])) return false;
    for (int at = 0; reading->wanted & WITH_TEXTS && at < reading->name_count; at++)
        if (!open_texts(&reading->columns[at], reading->most, bytes, true)) return false;
    return !(reading->wanted & WITH_MAP) || open_maps(&reading->maps, reading->most, bytes);
}

static void close_reading(Reading *reading) {
    close_texts(&reading->values);
    for (int at = 0; at < NUMBERS; at++) Py_CLEAR(reading->numbers[at].object);
    for (int at = 0; at < MOST_NAMES; at++) close_texts(&reading->columns[at]);
    close_maps(&reading->maps);
}

static PyObject *given_numbers(Reading *reading) {
    PyObject *given = PyTuple_New(NUMBERS);
    for (int at = 0; given && at < NUMBERS; at++) {
        PyObject *column = given_sheet(&reading->numbers[at]);
        if (!column)
            Py_CLEAR(given);
        else
            PyTuple_SetItem(given, at, column);
    }
    return given;
}

static PyObject *given_reading(Reading *reading) {
    const long wanted = reading->wanted;
    PyObject *values = wanted & WITH_VALUES ? given_texts(&reading->values) : Py_NewRef(Py_None);
    PyObject *numbers = wanted & WITH_NUMBERS ? given_numbers(reading) : Py_NewRef(Py_None);
    PyObject *columns = wanted & WITH_TEXTS ? given_columns(reading->columns, reading->name_count) : Py_NewRef(Py_None);
    PyObject *map = wanted & WITH_MAP ? given_maps(&reading->maps) : Py_NewRef(Py_None);
    PyObject *given = NULL;
    if (values && numbers && columns && map)
        given = Py_BuildValue("(ny#OOOO)", reading->rows, reading->topic.at, reading->topic.size, values, numbers, columns, map);
    Py_XDECREF(values);
    Py_XDECREF(numbers);
    Py_XDECREF(columns);
    Py_XDECREF(map);
    return given;
}

/* (buffer, first offset, end, irregular flags, wanted, names) -> (rows, topic, values, numbers, a column for each
   name, map), or None */
PyObject *read_columns(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    Reading reading = {0};
    Py_buffer buffer;
    if (count != 6) {
        PyErr_SetString(PyExc_TypeError, "read_columns takes 6 arguments");
        return NULL;
    }
    reading.first = PyLong_AsLongLong(arguments[1]);
    reading.end = PyLong_AsLongLong(arguments[2]);
    reading.irregular_flags = (uint32_t)PyLong_AsUnsignedLong(arguments[3]);
    reading.wanted = PyLong_AsLong(arguments[4]);
    if (PyErr_Occurred() || (reading.name_count = read_names(arguments[5], reading.names)) < 0) return NULL;
    if (reading.first < 0 || reading.end < reading.first) Py_RETURN_NONE;
    if (PyObject_GetBuffer(arguments[0], &buffer, PyBUF_SIMPLE) < 0) return NULL;
    reading.buffer = (Span){buffer.buf, buffer.len};
    PyObject *given = NULL;
    if (buffer.len > INT32_MAX)
        given = Py_NewRef(Py_None);
    else if (open_reading(&reading))
        given = read_all(&reading) ? given_reading(&reading) : Py_NewRef(Py_None);
    PyBuffer_Release(&buffer);
    close_reading(&reading);
    return given;
}

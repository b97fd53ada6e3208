/* Shared by all functions that build columns of records: buffers for Arrow, and decoded properties.
 *
 * Every buffer is allocated once, in the largest size that its rows can fill: the columns of a row are never longer than the row.
 */

#ifndef POCKETMQ_COLUMNS_H
#define POCKETMQ_COLUMNS_H

#include "turn.h"

enum { MOST_ENTRIES = 64, MOST_NAMES = 8, SMALLEST_ENTRY = 4, STEP = 32 };

typedef struct {
    Span name, value;
} Entry;

/* The properties of one record. */
typedef struct {
    Entry entries[MOST_ENTRIES];
    int count;
} Row;

/* A bytearray that is being written: it is truncated to the used size, without a copy. */
typedef struct {
    PyObject *object;
    byte *data;
    Py_ssize_t used;
} Sheet;

/* Joined texts, their offsets, and, if allocated, a validity bit for each. */
typedef struct {
    Sheet data, offsets, bits;
    Py_ssize_t count, missing;
} Texts;

/* A map in Arrow's format: the offsets of the entries of each row, their names, their values. */
typedef struct {
    Sheet firsts;
    Texts names, values;
} Maps;

bool open_sheet(Sheet *sheet, Py_ssize_t size);
/* Returns the written bytes; the sheet is empty afterwards. */
PyObject *given_sheet(Sheet *sheet);
bool open_texts(Texts *texts, Py_ssize_t count, Py_ssize_t bytes, bool with_bits);
PyObject *given_texts(Texts *texts);
void close_texts(Texts *texts);
/* For `rows` rows whose properties have so many bytes in total. */
bool open_maps(Maps *maps, Py_ssize_t rows, Py_ssize_t bytes);
PyObject *given_maps(Maps *maps);
void close_maps(Maps *maps);
/* A tuple of three new references. If one is NULL, the others are released. */
PyObject *packed(PyObject *first, PyObject *second, PyObject *third);

/* Decodes properties; false if they are irregular. */
bool read_row(Row *row, Span text);
/* The value of a name; its `at` is NULL if there is none. */
Span value_of(const Row *row, Span name);
void put_map(Maps *maps, const Row *row, const byte *readable_end);
/* Reads a tuple of names, up to the limit. Returns their number, or -1 with an error set. */
int read_names(PyObject *given, Span names[MOST_NAMES]);
/* A tuple of columns. */
PyObject *given_columns(Texts *columns, int count);

/* Item of an array of 64-bit numbers. */
static inline int64_t number_at(const Py_buffer *numbers, Py_ssize_t at) {
    int64_t number;
    memcpy(&number, (const byte *)numbers->buf + at * (Py_ssize_t)sizeof number, sizeof number);
    return number;
}

static inline void put_offset(Sheet *sheet, Py_ssize_t offset) {
    const int32_t number = (int32_t)offset;
    memcpy(sheet->data + sheet->used, &number, sizeof number);
    sheet->used += (Py_ssize_t)sizeof number;
}

/* Short texts are copied in one step of fixed size if enough bytes follow; the surplus is overwritten later. */
static inline void put_text(Texts *texts, Span text, const byte *readable_end) {
    byte *to = texts->data.data + texts->data.used;
    if (text.size <= STEP && readable_end - text.at >= STEP)
        memcpy(to, text.at, STEP);
    else if (text.size)
        memcpy(to, text.at, (size_t)text.size);
    texts->data.used += text.size;
    put_offset(&texts->offsets, texts->data.used);
    texts->count++;
}

/* The same for texts that may be missing. */
static inline void put_value(Texts *texts, Span text, const byte *readable_end) {
    if (text.at) {
        texts->bits.data[texts->count / 8] |= (byte)(1 << texts->count % 8);
        put_text(texts, text, readable_end);
        return;
    }
    put_offset(&texts->offsets, texts->data.used);
    texts->missing++;
    texts->count++;
}

#endif

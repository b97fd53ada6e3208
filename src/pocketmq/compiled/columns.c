/* Columns in Arrow's format, for readers of millions of records: buffers that are written once, and joined ranges. */

#include "columns.h"

bool open_sheet(Sheet *sheet, Py_ssize_t size) {
    sheet->object = PyByteArray_FromStringAndSize(NULL, size);
    sheet->data = sheet->object ? (byte *)PyByteArray_AsString(sheet->object) : NULL;
    return sheet->object != NULL;
}

PyObject *given_sheet(Sheet *sheet) {
    PyObject *object = sheet->object;
    sheet->object = NULL;
    if (object && PyByteArray_Resize(object, sheet->used) < 0) Py_CLEAR(object);
    return object;
}

bool open_texts(Texts *texts, Py_ssize_t count, Py_ssize_t bytes, bool with_bits) {
    if (!open_sheet(&texts->data, bytes + STEP) || !open_sheet(&texts->offsets, (count + 1) * (Py_ssize_t)sizeof(int32_t)))
        return false;
    put_offset(&texts->offsets, 0);
    if (!with_bits) return true;
    if (!open_sheet(&texts->bits, (count + 7) / 8)) return false;
    texts->bits.used = (count + 7) / 8;
    memset(texts->bits.data, 0, (size_t)texts->bits.used);
    return true;
}

PyObject *packed(PyObject *first, PyObject *second, PyObject *third) {
    PyObject *given = first && second && third ? PyTuple_Pack(3, first, second, third) : NULL;
    Py_XDECREF(first);
    Py_XDECREF(second);
    Py_XDECREF(third);
    return given;
}

PyObject *given_texts(Texts *texts) {
    texts->bits.used = (texts->count + 7) / 8; /* the buffer was allocated larger */
    PyObject *bits = texts->missing ? given_sheet(&texts->bits) : Py_NewRef(Py_None);
    return packed(bits, given_sheet(&texts->offsets), given_sheet(&texts->data));
}

void close_texts(Texts *texts) {
    Py_CLEAR(texts->data.object);
    Py_CLEAR(texts->offsets.object);
    Py_CLEAR(texts->bits.object);
}

bool open_maps(Maps *maps, Py_ssize_t rows, Py_ssize_t bytes) {
    /* an entry has at least four bytes, but the last one of a row may have three */
    const Py_ssize_t entries = (bytes + rows) / SMALLEST_ENTRY;
    if (!open_texts(&maps->names, entries, bytes, false) || !open_texts(&maps->values, entries, bytes, false)) return false;
    if (!open_sheet(&maps->firsts, (rows + 1) * (Py_ssize_t)sizeof(int32_t))) return false;
    put_offset(&maps->firsts, 0);
    return true;
}

PyObject *given_maps(Maps *maps) { return packed(given_sheet(&maps->firsts), given_texts(&maps->names), given_texts(&maps->values)); }

void close_maps(Maps *maps) {
    Py_CLEAR(maps->firsts.object);
    close_texts(&maps->names);
    close_texts(&maps->values);
}

void put_map(Maps *maps, const Row *row, const byte *readable_end) {
    for (int at = 0; at < row->count; at++) {
        put_text(&maps->names, row->entries[at].name, readable_end);
        put_text(&maps->values, row->entries[at].value, readable_end);
    }
    put_offset(&maps->firsts, maps->names.count);
}

/* Joins rows from `starts` to `ends`; false, with an error set, if one is outside of the buffer, or if they are too
   large. */
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
        PyErr_SetString(PyExc_ValueError, "rows are pairs of positions in the buffer, of less than 2 GiB in all");
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

/* (buffer, starts, ends) -> (the start of each row as 32-bit numbers; the rows) */
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

/* (buffer, smallest) -> the starts of records as 64-bit numbers; None if records do not fill the buffer exactly */
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

/* Packs rows of a Spark sink into the body of a batch; the same bytes as from `spark.write.sink_batches`.
 *
 *   | size 4 | 0, 0, flag 0: 12 | body length 4 | body … | properties length 2 | properties … |   again and again
 *
 *   properties   UNIQ_KEY 01 beginning … number 4 hex │ common properties │ the row's properties │ mark … row id 02
 */

#include "turn.h"

enum { ITEM_HEAD = 20, ITEM_FIXED = 22, NUMBER_DIGITS = 4 };

typedef struct {
    PyObject *bodies, *numbers, *own, *row_ids; /* lists of equal length; the last two may be NULL */
    Span beginning, common, mark;
} Rows;

/* The parts of one row. */
typedef struct {
    Span body, own, row_id;
    uint32_t number;
    Py_ssize_t properties, size;
} Row;

static bool text_at(PyObject *texts, Py_ssize_t at, Span *text) {
    *text = (Span){NULL, 0};
    if (!texts) return true;
    text->at = (const byte *)PyUnicode_AsUTF8AndSize(PyList_GetItem(texts, at), &text->size);
    return text->at != NULL;
}

static bool row_at(const Rows *rows, Py_ssize_t at, Row *row) {
    if (!span_of_bytes(PyList_GetItem(rows->bodies, at), &row->body)) return false;
    if (!text_at(rows->own, at, &row->own) || !text_at(rows->row_ids, at, &row->row_id)) return false;
    row->number = (uint32_t)PyLong_AsUnsignedLongMask(PyList_GetItem(rows->numbers, at));
    if (PyErr_Occurred()) return false;
    row->properties = rows->beginning.size + NUMBER_DIGITS + rows->common.size + row->own.size;
    if (rows->row_ids) row->properties += rows->mark.size + row->row_id.size + 1;
    row->size = ITEM_FIXED + row->body.size + row->properties;
    return true;
}

static byte *put(byte *to, Span span) {
    if (span.size) memcpy(to, span.at, (size_t)span.size);
    return to + span.size;
}

static byte *put_row(byte *to, const Rows *rows, const Row *row) {
    put32(to, (uint32_t)row->size);
    memset(to + 4, 0, 12);
    put32(to + 16, (uint32_t)row->body.size);
    to = put(to + ITEM_HEAD, row->body);
    put16(to, (uint32_t)row->properties);
    to = put(to + 2, rows->beginning);
    for (int shift = 12; shift >= 0; shift -= 4) *to++ = (byte) "0123456789ABCDEF"[row->number >> shift & 15];
    to = put(put(to, rows->common), row->own);
    if (!rows->row_ids) return to;
    to = put(put(to, rows->mark), row->row_id);
    *to++ = 2;
    return to;
}

/* The bytes of rows from `at` up to `end`; `size` in total. */
static PyObject *packed(const Rows *rows, Py_ssize_t at, Py_ssize_t end, Py_ssize_t size) {
    PyObject *body = PyBytes_FromStringAndSize(NULL, size);
    if (!body) return NULL;
    byte *to = (byte *)PyBytes_AsString(body);
    for (Row row; at < end; at++) {
        if (!row_at(rows, at, &row)) { /* it was readable before */
            Py_DECREF(body);
            return NULL;
        }
        to = put_row(to, rows, &row);
    }
    return body;
}

static bool read_list(PyObject *object, Py_ssize_t length, PyObject **list) {
    *list = object == Py_None ? NULL : object;
    if (!*list || (PyList_Check(*list) && PyList_Size(*list) == length)) return true;
    PyErr_SetString(PyExc_TypeError, "lists of rows must have the same length");
    return false;
}

static bool read_rows(Rows *rows, PyObject *const *arguments) {
    if (!PyList_Check(arguments[0]) || !PyList_Check(arguments[2])) {
        PyErr_SetString(PyExc_TypeError, "bodies and numbers must be lists");
        return false;
    }
    rows->bodies = arguments[0];
    const Py_ssize_t length = PyList_Size(rows->bodies);
    return read_list(arguments[2], length, &rows->numbers) && span_of_bytes(arguments[3], &rows->beginning) &&
           span_of_bytes(arguments[4], &rows->common) && read_list(arguments[5], length, &rows->own) &&
           span_of_bytes(arguments[6], &rows->mark) && read_list(arguments[7], length, &rows->row_ids);
}

/* pack_rows(bodies, at, numbers, beginning, common, own, mark, row_ids, most_properties, batch_bytes)
 *     -> (the body of a batch, the next row), or None if Python must report a row that does not fit */
PyObject *pack_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (count != 10) return PyErr_Format(PyExc_TypeError, "pack_rows takes 10 arguments, got %zd", count);
    Rows rows;
    if (!read_rows(&rows, arguments)) return NULL;
    const Py_ssize_t at = PyLong_AsSsize_t(arguments[1]), length = PyList_Size(rows.bodies);
    const Py_ssize_t most_properties = PyLong_AsSsize_t(arguments[8]), enough = PyLong_AsSsize_t(arguments[9]);
    if (PyErr_Occurred()) return NULL;
    if (at < 0 || at >= length || most_properties > INT16_MAX) return PyErr_Format(PyExc_ValueError, "a number is out of range");
    Py_ssize_t end = at, size = 0;
    Row row;
    do {
        if (!row_at(&rows, end, &row)) return NULL;
        if (row.properties > most_properties || row.size > INT32_MAX || row.size > PY_SSIZE_T_MAX - size) Py_RETURN_NONE;
        size += row.size;
        end++;
    } while (end < length && size < enough);
    PyObject *body = packed(&rows, at, end, size);
    return body ? Py_BuildValue("(Nn)", body, end) : NULL;
}

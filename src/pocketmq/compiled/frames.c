/* Splits bytes into frames: the loop of `protocol.frames.FrameSplitter`.
 *
 *   | total 4 | encoding 1 | header length 3 | header … | body … |
 */

#include "turn.h"

enum { PREFIX = 8 };

static PyObject *made_frame(uint32_t word, const byte *header, Py_ssize_t header_bytes, Py_ssize_t body_bytes) {
    PyObject *frame = PyTuple_New(FRAME_PARTS);
    PyObject *encoding = PyLong_FromLong((long)(word >> 24));
    PyObject *head = PyBytes_FromStringAndSize((const char *)header, header_bytes);
    PyObject *body = PyBytes_FromStringAndSize((const char *)header + header_bytes, body_bytes);
    if (!frame || !encoding || !head || !body) {
        Py_XDECREF(frame);
        Py_XDECREF(encoding);
        Py_XDECREF(head);
        Py_XDECREF(body);
        return NULL;
    }
    PyTuple_SetItem(frame, FRAME_ENCODING, encoding);
    PyTuple_SetItem(frame, FRAME_HEADER, head);
    PyTuple_SetItem(frame, FRAME_BODY, body);
    return frame;
}

bool read_frame(PyObject *frame, Span *header, Span *body) {
    if (!PyTuple_Check(frame) || PyTuple_Size(frame) != FRAME_PARTS) {
        PyErr_SetString(PyExc_TypeError, "a frame is a tuple of encoding, header and body");
        return false;
    }
    const long encoding = PyLong_AsLong(PyTuple_GetItem(frame, FRAME_ENCODING));
    if (PyErr_Occurred() || encoding != 0) return false;
    return span_of_bytes(PyTuple_GetItem(frame, FRAME_HEADER), header) && span_of_bytes(PyTuple_GetItem(frame, FRAME_BODY), body);
}

/* split_whole(data, largest_total, largest_header, largest_encoding) -> (frames, their size in bytes) */
PyObject *split_whole(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    Span data;
    if (count != 4) return PyErr_Format(PyExc_TypeError, "split_whole takes 4 arguments, got %zd", count);
    if (!span_of_bytes(arguments[0], &data)) return NULL;
    const int64_t largest_total = PyLong_AsLongLong(arguments[1]), largest_header = PyLong_AsLongLong(arguments[2]);
    const int64_t largest_encoding = PyLong_AsLongLong(arguments[3]);
    if (PyErr_Occurred()) return NULL;
    PyObject *frames = PyList_New(0);
    if (!frames) return NULL;
    Py_ssize_t at = 0;
    while (data.size - at >= PREFIX) {
        const int64_t total = get32(data.at + at);
        const uint32_t word = get32(data.at + at + 4);
        const int64_t header_bytes = word & 0xFFFFFF;
        if (total < 4 + header_bytes || total > data.size - at - 4 || total > largest_total) break;
        if (header_bytes > largest_header || (int64_t)(word >> 24) > largest_encoding) break;
        PyObject *frame = made_frame(word, data.at + at + PREFIX, (Py_ssize_t)header_bytes, (Py_ssize_t)(total - 4 - header_bytes));
        if (!frame || PyList_Append(frames, frame) < 0) {
            Py_XDECREF(frame);
            Py_DECREF(frames);
            return NULL;
        }
        Py_DECREF(frame);
        at += 4 + (Py_ssize_t)total;
    }
    return Py_BuildValue("(Nn)", frames, at);
}

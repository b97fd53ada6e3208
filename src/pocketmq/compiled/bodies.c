/* Packs only the bodies of records, for readers that need nothing else. See `protocol.body_pack`.
 *
 *   | head | body | topic | properties | head | body | …  ──►  | size | magic | count | 0 | the start of each … | body
 *   | body | … |
 *
 * It is built in one pass at its position in the answer. The answer has space for the largest pack and is truncated
 * after it.
 */

#include "turn.h"

#define PACK_MAGIC 0x504D5142u

enum { PACK_HEAD = 16, START_BYTES = 4, ALIGNED = 8 };
/* Compressed bodies, undecided transactions, batches stored as one record, and longer heads. */
enum { ODD_FLAGS = 0x1 | 0x4 | 0xC0 | HOST_FLAGS };

static void put_start(BodyPack *pack) {
    const uint32_t start = (uint32_t)(pack->body_at - pack->bodies_at);
    for (int octet = 0; octet < START_BYTES; octet++) pack->start_at[octet] = (byte)(start >> 8 * octet);
    pack->start_at += START_BYTES;
}

/* The size limit of a pack in relation to its records, or to one of them. */
static int64_t share_of(int64_t record_bytes) { return record_bytes / 4 * 3; }

bool can_be_packed(int64_t count, int64_t record_bytes) {
    return count > 0 && record_bytes <= INT32_MAX && count <= record_bytes / SMALLEST_RECORD;
}

int64_t pack_capacity(int64_t record_bytes) { return share_of(record_bytes) / ALIGNED * ALIGNED; }

void begin_pack(BodyPack *pack, byte *to, int64_t count, int64_t record_bytes) {
    byte *starts = to + PACK_HEAD, *bodies = starts + START_BYTES * (count + 1);
    *pack = (BodyPack){.at = to, .start_at = starts, .bodies_at = bodies, .body_at = bodies, .end = to + pack_capacity(record_bytes), .left = count};
    put32(to + 4, PACK_MAGIC);
    put32(to + 8, (uint32_t)count);
    put32(to + 12, 0);
    put_start(pack);
}

bool put_bodies(BodyPack *pack, Span records) {
    const byte *at = records.at, *end = at + records.size;
    while (at < end) {
        if (end - at < SMALLEST_RECORD || !pack->left) return false;
        const RecordHead *head = (const RecordHead *)at;
        const int64_t size = get32(head->size), body_bytes = get32(head->body_size);
        if (size < SMALLEST_RECORD || size > end - at || body_bytes > size - SMALLEST_RECORD) return false;
        if (get32(head->magic) != MAGIC_V1 || get32(head->sys_flag) & ODD_FLAGS) return false;
        if (body_bytes > pack->end - pack->body_at) return false;
        if (pack->body_at == pack->bodies_at && body_bytes > share_of(size)) return false; /* most messages of a
                                                                                              topic are similar to
                                                                                              the first */
        memcpy(pack->body_at, at + RECORD_HEAD, (size_t)body_bytes);
        pack->body_at += body_bytes;
        pack->left--;
        put_start(pack);
        at += size;
    }
    return true;
}

int64_t end_pack(BodyPack *pack) {
    while ((pack->body_at - pack->at) % ALIGNED) *pack->body_at++ = 0;
    const int64_t bytes = pack->body_at - pack->at;
    put32(pack->at, (uint32_t)bytes);
    return pack->left ? 0 : bytes;
}

PyObject *shrunk(PyObject *bytes, Py_ssize_t size) {
    if (size && PyByteArray_Resize(bytes, size) == 0) return bytes;
    Py_DECREF(bytes);
    return NULL;
}

/* NULL if whole records are better, or with an error set. */
static PyObject *pack_of(PyObject *pieces, int64_t count, int64_t record_bytes) {
    PyObject *bytes = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)pack_capacity(record_bytes));
    if (!bytes) return NULL;
    BodyPack pack;
    bool is_usual = true;
    begin_pack(&pack, (byte *)PyByteArray_AsString(bytes), count, record_bytes);
    for (Py_ssize_t at = 0; is_usual && at < PyList_Size(pieces); at++) {
        Py_buffer piece;
        is_usual = PyObject_GetBuffer(PyList_GetItem(pieces, at), &piece, PyBUF_SIMPLE) == 0;
        if (!is_usual) break;
        is_usual = put_bodies(&pack, (Span){piece.buf, piece.len});
        PyBuffer_Release(&piece);
    }
    return shrunk(bytes, is_usual ? (Py_ssize_t)end_pack(&pack) : 0);
}

/* pack_bodies([records, …], count, their bytes) -> the pack, or None if a record is irregular or the pack would save
   little */
PyObject *pack_bodies(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (count != 3) return PyErr_Format(PyExc_TypeError, "pack_bodies takes 3 arguments, got %zd", count);
    if (!PyList_Check(arguments[0])) return PyErr_Format(PyExc_TypeError, "pieces are a list");
    const int64_t records = PyLong_AsLongLong(arguments[1]), record_bytes = PyLong_AsLongLong(arguments[2]);
    if (PyErr_Occurred()) return NULL;
    PyObject *pack = can_be_packed(records, record_bytes) ? pack_of(arguments[0], records, record_bytes) : NULL;
    return pack || PyErr_Occurred() ? pack : Py_NewRef(Py_None);
}

/* The ids of rows that a Spark sink writes effectively once, as `spark.write.sink_replays` assigns them to new rows:
 *
 *   <prefix> <BLAKE2b of head and body, 20 hex digits> -0
 *
 * Rows are independent of one another, so four are hashed together: one vector instruction does each step for all
 * four, if the
 * machine has such instructions. While a longer row continues, the other vector slots are idle.
 */

#include "turn.h"

enum { LANES = 4, BLOCK = 128, WORDS = 16, STATE = 8, ROUNDS = 12, DIGEST = 10 };

typedef uint64_t Lanes __attribute__((vector_size(LANES * 8)));

static const uint64_t beginnings[STATE] = {
    0x6A09E667F3BCC908u, 0xBB67AE8584CAA73Bu, 0x3C6EF372FE94F82Bu, 0xA54FF53A5F1D36F1u,
    0x510E527FADE682D1u, 0x9B05688C2B3E6C1Fu, 0x1F83D9ABFB41BD6Bu, 0x5BE0CD19137E2179u,
};

/* The order of the words of a block; rounds eleven and twelve are like the first two. */
static const byte orders[ROUNDS][WORDS] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
};

/* Four messages, each a head and a body, and their progress. */
typedef struct {
    Span heads[LANES], bodies[LANES];
    int64_t totals[LANES];
    Lanes state[STATE];
    byte digests[LANES][DIGEST];
} Digesting;

#define ROTATED(lanes, bits) ((lanes) >> (bits) | (lanes) << (64 - (bits)))
#define MIX(a, b, c, d, x, y)                 \
    do {                                      \
        a += b + x, d = ROTATED(d ^ a, 32);   \
        c += d, b = ROTATED(b ^ c, 24);       \
        a += b + y, d = ROTATED(d ^ a, 16);   \
        c += d, b = ROTATED(b ^ c, 63);       \
    } while (0)

static inline uint64_t word_at(const byte *at) {
    return (uint64_t)at[0] | (uint64_t)at[1] << 8 | (uint64_t)at[2] << 16 | (uint64_t)at[3] << 24 | (uint64_t)at[4] << 32 |
           (uint64_t)at[5] << 40 | (uint64_t)at[6] << 48 | (uint64_t)at[7] << 56;
}

/* One block of each message, with the number of bytes up to its end, and a mask for the last block. */
typedef struct {
    const byte *blocks[LANES];
    uint64_t done[LANES], last[LANES];
} Step;

static inline __attribute__((always_inline)) void compress(Lanes *state, const Step *step) {
    const byte *const *blocks = step->blocks;
    const uint64_t *done = step->done, *last = step->last;
    Lanes v[2 * STATE], words[WORDS];
    for (int at = 0; at < WORDS; at++)
        words[at] = (Lanes){word_at(blocks[0] + 8 * at), word_at(blocks[1] + 8 * at), word_at(blocks[2] + 8 * at), word_at(blocks[3] + 8 * at)};
    for (int at = 0; at < STATE; at++) {
        v[at] = state[at];
        v[STATE + at] = (Lanes){0} + beginnings[at];
    }
    v[12] ^= (Lanes){done[0], done[1], done[2], done[3]};
    v[14] ^= (Lanes){last[0], last[1], last[2], last[3]};
    for (int round = 0; round < ROUNDS; round++) {
        const byte *order = orders[round];
        MIX(v[0], v[4], v[8], v[12], words[order[0]], words[order[1]]);
        MIX(v[1], v[5], v[9], v[13], words[order[2]], words[order[3]]);
        MIX(v[2], v[6], v[10], v[14], words[order[4]], words[order[5]]);
        MIX(v[3], v[7], v[11], v[15], words[order[6]], words[order[7]]);
        MIX(v[0], v[5], v[10], v[15], words[order[8]], words[order[9]]);
        MIX(v[1], v[6], v[11], v[12], words[order[10]], words[order[11]]);
        MIX(v[2], v[7], v[8], v[13], words[order[12]], words[order[13]]);
        MIX(v[3], v[4], v[9], v[14], words[order[14]], words[order[15]]);
    }
    for (int at = 0; at < STATE; at++) state[at] ^= v[at] ^ v[STATE + at];
}

static void compress_usual(Lanes *state, const Step *step) { compress(state, step); }

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void compress_wide(Lanes *state, const Step *step) { compress(state, step); }
#else
#define compress_wide compress_usual
#endif

/* One block of a message from `at` on. Bytes that are not contiguous, or a short last block, are copied and filled
   with zeros. */
static const byte *block_at(Span head, Span body, int64_t at, byte *copy) {
    if (at >= head.size && body.size - (at - head.size) >= BLOCK) return body.at + (at - head.size);
    int used = 0;
    memset(copy, 0, BLOCK);
    if (at < head.size) {
        used = (int)(head.size - at < BLOCK ? head.size - at : BLOCK);
        memcpy(copy, head.at + at, (size_t)used);
    }
    const int64_t from = at + used - head.size, left = body.size - from;
    if (left > 0) memcpy(copy + used, body.at + from, (size_t)(left < BLOCK - used ? left : BLOCK - used));
    return copy;
}

static void keep_digest(Digesting *four, int lane) {
    for (int at = 0; at < DIGEST; at++) four->digests[lane][at] = (byte)(four->state[at / 8][lane] >> at % 8 * 8);
}

static void digest_four(Digesting *four, bool wide) {
    int64_t longest = 1;
    for (int at = 0; at < STATE; at++) four->state[at] = (Lanes){0} + beginnings[at];
    four->state[0] ^= 0x01010000u ^ DIGEST;
    for (int lane = 0; lane < LANES; lane++)
        if (four->totals[lane] > longest) longest = four->totals[lane];
    for (int64_t at = 0; at < longest; at += BLOCK) {
        byte copies[LANES][BLOCK];
        Step step;
        for (int lane = 0; lane < LANES; lane++) {
            const int64_t total = four->totals[lane];
            step.blocks[lane] = block_at(four->heads[lane], four->bodies[lane], at, copies[lane]);
            step.done[lane] = (uint64_t)(total - at < BLOCK ? total : at + BLOCK);
            step.last[lane] = total - at <= BLOCK ? ~(uint64_t)0 : 0;
        }
        (wide ? compress_wide : compress_usual)(four->state, &step);
        for (int lane = 0; lane < LANES; lane++) /* the block in which it ended, not the idle blocks after it */
            if (four->totals[lane] - at <= BLOCK && (four->totals[lane] > at || !at)) keep_digest(four, lane);
    }
}

static PyObject *id_of(Span prefix, const byte *digest, Out *text) {
    text->used = 0;
    out_span(text, prefix);
    for (int at = 0; at < DIGEST; at++) {
        const byte digits[2] = {(byte) "0123456789abcdef"[digest[at] >> 4], (byte) "0123456789abcdef"[digest[at] & 15]};
        out_put(text, digits, 2);
    }
    out_span(text, TEXT("-0"));
    return text->failed ? NULL : PyUnicode_FromStringAndSize((const char *)text->data, text->used);
}

/* Reads up to four rows from `at` on; slots without a row are idle. Returns their number, or -1 with an error set. */
static int read_four(Digesting *four, PyObject *heads, PyObject *bodies, Py_ssize_t at) {
    const Py_ssize_t left = PyList_Size(bodies) - at;
    const int count = left < LANES ? (int)left : LANES;
    for (int lane = 0; lane < LANES; lane++) {
        four->heads[lane] = four->bodies[lane] = (Span){(const byte *)"", 0};
        if (lane < count) {
            PyObject *head = PyList_Check(heads) ? PyList_GetItem(heads, at + lane) : heads;
            if (!span_of_bytes(head, &four->heads[lane]) || !span_of_bytes(PyList_GetItem(bodies, at + lane), &four->bodies[lane])) return -1;
        }
        four->totals[lane] = (int64_t)four->heads[lane].size + four->bodies[lane].size;
    }
    return count;
}

/* row_ids(prefix, heads, bodies) -> their ids. There is one head for each row, or one for all. */
PyObject *row_ids(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (count != 3) return PyErr_Format(PyExc_TypeError, "row_ids takes 3 arguments, got %zd", count);
    PyObject *heads = arguments[1], *bodies = arguments[2];
    Span prefix;
    if (!span_of_bytes(arguments[0], &prefix)) return NULL;
    if (!PyList_Check(bodies) || (PyList_Check(heads) && PyList_Size(heads) != PyList_Size(bodies)))
        return PyErr_Format(PyExc_TypeError, "bodies must be a list, and heads a list or one bytes object");
    const bool wide = has_avx2;
    PyObject *ids = PyList_New(0);
    Out text = {0};
    for (Py_ssize_t at = 0; ids && at < PyList_Size(bodies); at += LANES) {
        Digesting four;
        const int rows = read_four(&four, heads, bodies, at);
        if (rows > 0) digest_four(&four, wide);
        for (int lane = 0; ids && lane < rows; lane++) {
            PyObject *id = id_of(prefix, four.digests[lane], &text);
            if (!id || PyList_Append(ids, id) < 0) Py_CLEAR(ids);
            Py_XDECREF(id);
        }
        if (rows < 0) Py_CLEAR(ids);
    }
    out_free(&text);
    return ids;
}

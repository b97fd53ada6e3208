/* Spans, growing bytes, numbers in network order, checksums and hashes. */

#include "turn.h"

Py_ssize_t span_find(Span span, Span part) {
    const byte *at = span.at, *end = span.at + span.size;
    while (end - at >= part.size) {
        const byte *found = memchr(at, part.at[0], (size_t)(end - at - part.size + 1));
        if (!found) return -1;
        if (!memcmp(found, part.at, (size_t)part.size)) return found - span.at;
        at = found + 1;
    }
    return -1;
}

bool span_holds(Span span, Span part) { return span_find(span, part) >= 0; }

/* The last position of a property's name with the 0x01 after it; the end of a longer name does not match. */
Py_ssize_t span_find_last_name(Span properties, Span name) {
    const byte *at = properties.at, *end = properties.at + properties.size;
    Py_ssize_t found = -1;
    while (at && end - at >= name.size) {
        if (*at == *name.at && !memcmp(at, name.at, (size_t)name.size)) found = at - properties.at;
        at = memchr(at, 2, (size_t)(end - at));
        if (at) at++;
    }
    return found;
}

bool span_of_bytes(PyObject *object, Span *span) {
    char *data;
    if (PyBytes_AsStringAndSize(object, &data, &span->size) < 0) return false;
    span->at = (const byte *)data;
    return true;
}

bool out_grow(Out *out, Py_ssize_t more) {
    if (out->failed) return false;
    Py_ssize_t capacity = out->capacity ? out->capacity : 1024;
    while (capacity - out->used < more) {
        if (capacity > PY_SSIZE_T_MAX / 2) goto failed;
        capacity *= 2;
    }
    byte *data = PyMem_Realloc(out->data, (size_t)capacity);
    if (!data) goto failed;
    out->data = data;
    out->capacity = capacity;
    return true;
failed:
    out->failed = true;
    PyErr_NoMemory();
    return false;
}

void out_number(Out *out, int64_t number) {
    byte digits[20];
    int at = sizeof digits;
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    do digits[--at] = (byte)('0' + rest % 10);
    while (rest /= 10);
    if (number < 0) digits[--at] = '-';
    out_put(out, digits + at, (Py_ssize_t)sizeof digits - at);
}

void out_hex16(Out *out, uint64_t number) {
    if (!out_need(out, 16)) return;
    byte *digits = out->data + out->used;
    for (int at = 15; at >= 0; at--, number >>= 4) digits[at] = (byte) "0123456789ABCDEF"[number & 15];
    out->used += 16;
}

PyObject *out_bytes(const Out *out) { return PyBytes_FromStringAndSize((const char *)out->data, out->used); }

void out_free(Out *out) {
    PyMem_Free(out->data);
    *out = (Out){0};
}

/* Eight bytes per step: table n is for the byte that has n more bytes after it in the step. */
static uint32_t crc_tables[8][256];

void prepare_crc(void) {
    for (uint32_t value = 0; value < 256; value++) {
        uint32_t crc = value;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
        crc_tables[0][value] = crc;
    }
    for (int step = 1; step < 8; step++)
        for (uint32_t value = 0; value < 256; value++) {
            uint32_t before = crc_tables[step - 1][value];
            crc_tables[step][value] = before >> 8 ^ crc_tables[0][before & 255];
        }
}

/* Continues a checksum over the bytes of a span. */
static uint32_t crc_on(uint32_t crc, Span rest) {
    const byte *at = rest.at, *end = rest.at + rest.size;
    for (; end - at >= 8; at += 8) {
        uint32_t low = crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        crc = crc_tables[7][low & 255] ^ crc_tables[6][low >> 8 & 255] ^ crc_tables[5][low >> 16 & 255] ^
              crc_tables[4][low >> 24] ^ crc_tables[3][at[4]] ^ crc_tables[2][at[5]] ^ crc_tables[1][at[6]] ^
              crc_tables[0][at[7]];
    }
    for (; at < end; at++) crc = crc >> 8 ^ crc_tables[0][(crc ^ *at) & 255];
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

enum { FOLD = 16, FOLDED_AT_ONCE = 4 * FOLD };

/* Multiplies 16 bytes by x^n modulo the polynomial, and adds the next 16. The factors are x^(n+32) and x^(n-32);
   bits are mirrored as in the rest of this checksum. */
__attribute__((target("pclmul,sse2"))) static inline __m128i folded(__m128i bytes, __m128i factors, __m128i there) {
    const __m128i low = _mm_clmulepi64_si128(bytes, factors, 0x00), high = _mm_clmulepi64_si128(bytes, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), there);
}

/* The same by carry-less multiplication, for 64 bytes and more: fold everything into the last 16 bytes, then compute
   their checksum. */
__attribute__((target("pclmul,sse2"))) static uint32_t crc_folded(Span body) {
    const __m128i by_64 = _mm_set_epi64x(0x01C6E41596, 0x0154442BD4), by_16 = _mm_set_epi64x(0x00CCAA009E, 0x01751997D0);
    const byte *at = body.at, *end = body.at + body.size;
    const __m128i *from = (const __m128i *)at;
    __m128i sums[4];
    byte left[FOLD];
    for (int number = 0; number < 4; number++) sums[number] = _mm_loadu_si128(from + number);
    sums[0] = _mm_xor_si128(sums[0], _mm_cvtsi32_si128(-1));
    for (at += FOLDED_AT_ONCE; end - at >= FOLDED_AT_ONCE; at += FOLDED_AT_ONCE) {
        from = (const __m128i *)at;
        for (int number = 0; number < 4; number++) sums[number] = folded(sums[number], by_64, _mm_loadu_si128(from + number));
    }
    for (int number = 1; number < 4; number++) sums[number] = folded(sums[number - 1], by_16, sums[number]);
    for (; end - at >= FOLD; at += FOLD) sums[3] = folded(sums[3], by_16, _mm_loadu_si128((const __m128i *)at));
    _mm_storeu_si128((__m128i *)left, sums[3]);
    return crc_on(crc_on(0, (Span){left, FOLD}), (Span){at, end - at});
}

static bool folds(Span body) { return body.size >= FOLDED_AT_ONCE && has_pclmul; }
#else
static uint32_t crc_folded(Span body) { return crc_on(0xFFFFFFFFu, body); }
static bool folds(Span body) { return false; }
#endif

uint32_t crc_of(Span body) { return ~(folds(body) ? crc_folded(body) : crc_on(0xFFFFFFFFu, body)); }

/* The size of the UTF-8 character that begins with this byte; 1 for an invalid first byte. */
static int utf8_length(byte first) { return first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4; }

uint32_t java_hash(uint32_t hash, Span text) {
    const byte *at = text.at, *end = text.at + text.size;
    /* Four ASCII characters per step: one by one, each would wait for the previous product. */
    while (end - at >= 4 && !((at[0] | at[1] | at[2] | at[3]) & 0x80)) {
        hash = hash * (31u * 31 * 31 * 31) + at[0] * (31u * 31 * 31) + at[1] * (31u * 31) + at[2] * 31u + at[3];
        at += 4;
    }
    while (at < end) {
        int length = utf8_length(*at);
        if (length == 1 || length > end - at) {
            hash = hash * 31 + *at++;
            continue;
        }
        uint32_t point = *at & (0x7Fu >> length);
        for (int more = 1; more < length; more++) point = point << 6 | (at[more] & 0x3Fu);
        at += length;
        if (point < 0x10000) {
            hash = hash * 31 + point;
        } else { /* two UTF-16 units */
            hash = hash * 31 + (0xD7C0 + (point >> 10));
            hash = hash * 31 + (0xDC00 | (point & 0x3FF));
        }
    }
    return hash;
}

bool is_ascii(Span text) {
    uint64_t seen = 0, word;
    Py_ssize_t at = 0;
    for (; text.size - at >= 8; at += 8) {
        memcpy(&word, text.at + at, 8);
        seen |= word;
    }
    for (; at < text.size; at++) seen |= text.at[at];
    return !(seen & 0x8080808080808080u);
}

bool is_utf8(Span text) {
    if (is_ascii(text)) return true;
    PyObject *decoded = PyUnicode_DecodeUTF8((const char *)text.at, text.size, NULL);
    if (!decoded) PyErr_Clear();
    Py_XDECREF(decoded);
    return decoded != NULL;
}

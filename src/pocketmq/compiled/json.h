/* Functions that read parts of a JSON header: see `json.c`. They are inline, because a header needs about fifty
   calls. */

#ifndef POCKETMQ_JSON_H
#define POCKETMQ_JSON_H

#include "turn.h"

/* The unread rest. */
typedef struct {
    const byte *at, *end;
} Cursor;

/* The raw content of a string, between its quotes. */
typedef struct {
    Span raw;
    bool escaped, ascii;
} Text;

static inline void skip_blanks(Cursor *cursor) {
    while (cursor->at < cursor->end && (*cursor->at == ' ' || *cursor->at == '\n' || *cursor->at == '\t' || *cursor->at == '\r'))
        cursor->at++;
}

static inline bool take(Cursor *cursor, byte mark) {
    skip_blanks(cursor);
    if (cursor->at == cursor->end || *cursor->at != mark) return false;
    cursor->at++;
    return true;
}

static inline bool take_text(Cursor *cursor, Text *text) {
    if (!take(cursor, '"')) return false;
    const byte *at = cursor->at;
    byte seen = 0;
    text->escaped = false;
    for (; at < cursor->end && *at != '"'; at++) {
        if (*at < 0x20) return false;
        seen |= *at;
        if (*at == '\\') {
            text->escaped = true;
            if (++at == cursor->end) return false;
        }
    }
    if (at == cursor->end) return false;
    text->raw = (Span){cursor->at, at - cursor->at};
    text->ascii = seen < 0x80;
    cursor->at = at + 1;
    return true;
}

/* A text without escapes and only of ASCII, so that its raw bytes are its value. */
static inline bool take_plain(Cursor *cursor, Span *plain) {
    Text text;
    if (!take_text(cursor, &text) || text.escaped || !text.ascii) return false;
    *plain = text.raw;
    return true;
}

/* A whole number in its usual form, with at most 18 digits, so that it fits into 64 bits. */
static inline bool read_number(Span text, int64_t least, int64_t most, int64_t *number) {
    const byte *at = text.at, *end = text.at + text.size;
    const bool negative = at < end && *at == '-';
    at += negative;
    if (at == end || end - at > 18 || (*at == '0' && (end - at > 1 || negative))) return false;
    int64_t value = 0;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9') return false;
        value = value * 10 + (*at - '0');
    }
    *number = negative ? -value : value;
    return least <= *number && *number <= most;
}

/* The header without its ext fields, and the position of the opaque; NULL if it has none. */
typedef struct {
    int64_t opaque, flag;
    Span opaque_text;
} Envelope;

/* Reads the ext fields, from their brace to its end. */
typedef bool (*TakeExt)(Cursor *cursor, void *head);

/* Reads a header that begins with `start`, which includes its code; false if it is irregular. */
bool read_envelope(Span header, Span start, TakeExt take_ext, void *head, Envelope *envelope);

#endif

/* The JSON header of a send as every client writes it, read in one pass.
 *
 *   {"code":310,"extFields":{"a":"group","b":"topic",…,"i":"KEYS\u00011\u0002…"},"flag":0,"language":"JAVA",…,"opaque":7,"version":479}
 *
 * Usual is: the code comes first, each key once and known, ext values are strings, numbers are written plainly. Anything else is
 * declined, be it wrong or only rare: `protocol.heads` reads it then.
 */

#include "turn.h"

typedef struct {
    const byte *at, *end;
} Cursor;

/* A string as it stands between its quotes. */
typedef struct {
    Span raw;
    bool escaped, ascii;
} Text;

static void skip_blanks(Cursor *cursor) {
    while (cursor->at < cursor->end && (*cursor->at == ' ' || *cursor->at == '\n' || *cursor->at == '\t' || *cursor->at == '\r'))
        cursor->at++;
}

static bool take(Cursor *cursor, byte mark) {
    skip_blanks(cursor);
    if (cursor->at == cursor->end || *cursor->at != mark) return false;
    cursor->at++;
    return true;
}

static bool take_text(Cursor *cursor, Text *text) {
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

/* A text that means what it looks like. */
static bool take_plain(Cursor *cursor, Span *plain) {
    Text text;
    if (!take_text(cursor, &text) || text.escaped || !text.ascii) return false;
    *plain = text.raw;
    return true;
}

/* A whole number in the one way that everybody writes it; with 18 digits at most it fits. */
static bool read_number(Span text, int64_t least, int64_t most, int64_t *number) {
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

static bool take_number(Cursor *cursor, int64_t *number) {
    skip_blanks(cursor);
    const byte *start = cursor->at;
    while (cursor->at < cursor->end && ((*cursor->at >= '0' && *cursor->at <= '9') || *cursor->at == '-')) cursor->at++;
    return read_number((Span){start, cursor->at - start}, INT32_MIN, INT32_MAX, number);
}

static int hex_digit(byte digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    digit |= 0x20;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* Puts the character of \uXXXX, whose digits begin at `at`; false for a half of a pair, which are rare, and for what is none. */
static bool put_unicode(const byte *at, byte **to) {
    uint32_t point = 0;
    for (int digit = 0; digit < 4; digit++) {
        const int value = hex_digit(at[digit]);
        if (value < 0) return false;
        point = point << 4 | (uint32_t)value;
    }
    if (point >= 0xD800 && point < 0xE000) return false;
    if (point < 0x80) {
        *(*to)++ = (byte)point;
    } else if (point < 0x800) {
        *(*to)++ = (byte)(0xC0 | point >> 6);
        *(*to)++ = (byte)(0x80 | (point & 0x3F));
    } else {
        *(*to)++ = (byte)(0xE0 | point >> 12);
        *(*to)++ = (byte)(0x80 | (point >> 6 & 0x3F));
        *(*to)++ = (byte)(0x80 | (point & 0x3F));
    }
    return true;
}

/* The text without its escapes; what they stand for is never longer than they are. */
static bool unescape(const Text *text, Out *scratch, Span *plain) {
    scratch->used = 0;
    if (!out_need(scratch, text->raw.size + 1)) return false;
    const byte *at = text->raw.at, *end = at + text->raw.size;
    byte *to = scratch->data;
    while (at < end) {
        if (*at != '\\') {
            *to++ = *at++;
            continue;
        }
        if (end - at < 2) return false;
        const byte kind = at[1];
        at += 2;
        switch (kind) {
        case '"': case '\\': case '/': *to++ = kind; break;
        case 'b': *to++ = '\b'; break;
        case 'f': *to++ = '\f'; break;
        case 'n': *to++ = '\n'; break;
        case 'r': *to++ = '\r'; break;
        case 't': *to++ = '\t'; break;
        case 'u':
            if (end - at < 4 || !put_unicode(at, &to)) return false;
            at += 4;
            break;
        default: return false;
        }
    }
    *plain = (Span){scratch->data, to - scratch->data};
    return text->ascii || is_utf8(*plain);
}

static bool is_boolean(Span text) { return span_is(text, TEXT("true")) || span_is(text, TEXT("false")); }

/* One ext field, by its letter; see `SendMessageV2`. */
static bool take_field(Cursor *cursor, byte name, Out *scratch, SendHead *head) {
    if (name == 'i') {
        Text text;
        return take_text(cursor, &text) && unescape(&text, scratch, &head->properties);
    }
    Span value;
    int64_t ignored;
    if (!take_plain(cursor, &value)) return false;
    switch (name) {
    case 'a': case 'c': case 'n': return true; /* group, default topic, broker name: of no use for a topic that is known */
    case 'b': head->topic = value; return true;
    case 'd': case 'l': return read_number(value, INT32_MIN, INT32_MAX, &ignored);
    case 'e': head->queue_text = value; return read_number(value, 0, INT32_MAX, &head->queue_id);
    case 'f': return read_number(value, INT32_MIN, INT32_MAX, &head->sys_flag);
    case 'g': return read_number(value, INT64_MIN, INT64_MAX, &head->born_ms);
    case 'h': return read_number(value, INT32_MIN, INT32_MAX, &head->flag);
    case 'j': return read_number(value, INT32_MIN, INT32_MAX, &head->reconsume_times);
    case 'k': case 'm': return is_boolean(value);
    default: return false;
    }
}

#define LETTERS(last) ((1u << ((last) - 'a' + 1)) - 1)

static bool take_ext(Cursor *cursor, Out *scratch, SendHead *head) {
    uint32_t seen = 0;
    if (!take(cursor, '{')) return false;
    do {
        Span name;
        if (!take_plain(cursor, &name) || name.size != 1 || name.at[0] < 'a' || name.at[0] > 'n' || !take(cursor, ':')) return false;
        const uint32_t bit = 1u << (name.at[0] - 'a');
        if (seen & bit || !take_field(cursor, name.at[0], scratch, head)) return false;
        seen |= bit;
    } while (take(cursor, ','));
    /* a to h are in every send, and a message without properties is none of the usual ones */
    return take(cursor, '}') && (seen & LETTERS('i')) == LETTERS('i');
}

enum { EXT = 1, OPAQUE = 2, FLAG = 4, VERSION = 8, LANGUAGE = 16, ENCODING = 32 };

/* Which member of the header this is; 0 when a usual one has none of this name. No two have the same size. */
static uint32_t member_of(Span name) {
    if (span_is(name, TEXT("extFields"))) return EXT;
    if (span_is(name, TEXT("opaque"))) return OPAQUE;
    if (span_is(name, TEXT("flag"))) return FLAG;
    if (span_is(name, TEXT("version"))) return VERSION;
    if (span_is(name, TEXT("language"))) return LANGUAGE;
    return span_is(name, TEXT("serializeTypeCurrentRPC")) ? ENCODING : 0;
}

static bool take_member(Cursor *cursor, uint32_t member, Out *scratch, SendHead *head, int64_t *flag) {
    Span ignored;
    int64_t version;
    switch (member) {
    case EXT: return take_ext(cursor, scratch, head);
    case OPAQUE: return take_number(cursor, &head->opaque);
    case FLAG: return take_number(cursor, flag);
    case VERSION: return take_number(cursor, &version);
    case LANGUAGE: case ENCODING: return take_plain(cursor, &ignored);
    default: return false;
    }
}

bool read_send_head(Span header, Out *scratch, SendHead *head) {
    const Span start = TEXT("{\"code\":310");
    *head = (SendHead){0};
    if (header.size < start.size || memcmp(header.at, start.at, (size_t)start.size)) return false;
    Cursor cursor = {header.at + start.size, header.at + header.size};
    int64_t flag = 0;
    uint32_t seen = 0;
    while (take(&cursor, ',')) {
        Span name;
        if (!take_plain(&cursor, &name) || !take(&cursor, ':')) return false;
        const uint32_t member = member_of(name);
        if (seen & member || !take_member(&cursor, member, scratch, head, &flag)) return false;
        seen |= member;
    }
    if (!take(&cursor, '}') || !(seen & EXT)) return false;
    skip_blanks(&cursor);
    head->oneway = flag == 2;
    return cursor.at == cursor.end && (flag == 0 || flag == 2);
}

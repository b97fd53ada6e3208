/* The header of a send or a batch: its ext fields by their letters, and its unescaped properties.
 *
 *   "extFields":{"a":"group","b":"topic",…,"e":"queue id",…,"i":"KEYS\u00011\u0002…"}
 *
 * An irregular header is declined: see `json.c`.
 */

#include "json.h"

static int hex_digit(byte digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    digit |= 0x20;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* Decodes \uXXXX, whose digits begin at `at`; false for a surrogate, which is rare, and for invalid digits. */
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

/* Unescapes a text; the result is never longer. */
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

/* The ext fields of a send, and the memory for its properties. */
typedef struct {
    SendHead *head;
    Out *scratch;
} Reading;

/* One ext field, by its letter; see `SendMessageV2`. */
static bool take_field(Cursor *cursor, byte name, Reading *reading) {
    SendHead *head = reading->head;
    if (name == 'i') {
        Text text;
        return take_text(cursor, &text) && unescape(&text, reading->scratch, &head->properties);
    }
    Span value;
    int64_t ignored;
    if (!take_plain(cursor, &value)) return false;
    switch (name) {
    case 'a': case 'c': case 'n': return true; /* group, default topic, broker name: not needed for a known topic */
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

static bool take_ext(Cursor *cursor, void *reading) {
    uint32_t seen = 0;
    if (!take(cursor, '{')) return false;
    do {
        Span name;
        if (!take_plain(cursor, &name) || name.size != 1 || name.at[0] < 'a' || name.at[0] > 'n' || !take(cursor, ':')) return false;
        const uint32_t bit = 1u << (name.at[0] - 'a');
        if (seen & bit || !take_field(cursor, name.at[0], reading)) return false;
        seen |= bit;
    } while (take(cursor, ','));
    /* a to h are in every send, and a regular message has properties */
    return take(cursor, '}') && (seen & LETTERS('i')) == LETTERS('i');
}

bool read_send_head(Span header, Out *scratch, SendHead *head) {
    Reading reading = {head, scratch};
    Envelope envelope;
    const Span single = TEXT("{\"code\":310"), batch = TEXT("{\"code\":320");
    *head = (SendHead){0};
    head->batch = header.size > batch.size && header.at[batch.size - 2] == '2';
    if (!read_envelope(header, head->batch ? batch : single, take_ext, &reading, &envelope)) return false;
    head->opaque = envelope.opaque;
    head->oneway = envelope.flag == 2;
    return envelope.flag == 0 || envelope.flag == 2;
}

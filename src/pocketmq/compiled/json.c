/* Reads the usual JSON header of a request in one pass.
 *
 *   {"code":310,"extFields":{ … },"flag":0,"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON","version":479}
 *
 * In a regular header the code comes first, each key is known and occurs once, ext values are strings, and numbers
 * have no
 * exponent. Any other header, invalid or only rare, is declined, and `protocol.hot_headers` reads it.
 */

#include "json.h"

static bool take_number(Cursor *cursor, Span *text, int64_t *number) {
    skip_blanks(cursor);
    const byte *start = cursor->at;
    while (cursor->at < cursor->end && ((*cursor->at >= '0' && *cursor->at <= '9') || *cursor->at == '-')) cursor->at++;
    *text = (Span){start, cursor->at - start};
    return read_number(*text, INT32_MIN, INT32_MAX, number);
}

enum { EXT = 1, OPAQUE = 2, FLAG = 4, VERSION = 8, LANGUAGE = 16, ENCODING = 32 };

/* The member of the header with this name; 0 for an unknown name. No two names have the same size. */
static uint32_t member_of(Span name) {
    if (span_is(name, TEXT("extFields"))) return EXT;
    if (span_is(name, TEXT("opaque"))) return OPAQUE;
    if (span_is(name, TEXT("flag"))) return FLAG;
    if (span_is(name, TEXT("version"))) return VERSION;
    if (span_is(name, TEXT("language"))) return LANGUAGE;
    return span_is(name, TEXT("serializeTypeCurrentRPC")) ? ENCODING : 0;
}

static bool take_member(Cursor *cursor, uint32_t member, TakeExt take_ext, void *head, Envelope *envelope) {
    Span ignored;
    int64_t version;
    switch (member) {
    case EXT: return take_ext(cursor, head);
    case OPAQUE: return take_number(cursor, &envelope->opaque_text, &envelope->opaque);
    case FLAG: return take_number(cursor, &ignored, &envelope->flag);
    case VERSION: return take_number(cursor, &ignored, &version);
    case LANGUAGE: case ENCODING: return take_plain(cursor, &ignored);
    default: return false;
    }
}

bool read_envelope(Span header, Span start, TakeExt take_ext, void *head, Envelope *envelope) {
    if (header.size < start.size || memcmp(header.at, start.at, (size_t)start.size)) return false;
    Cursor cursor = {header.at + start.size, header.at + header.size};
    uint32_t seen = 0;
    *envelope = (Envelope){0};
    while (take(&cursor, ',')) {
        Span name;
        if (!take_plain(&cursor, &name) || !take(&cursor, ':')) return false;
        const uint32_t member = member_of(name);
        if (seen & member || !take_member(&cursor, member, take_ext, head, envelope)) return false;
        seen |= member;
    }
    if (!take(&cursor, '}') || !(seen & EXT)) return false;
    skip_blanks(&cursor);
    return cursor.at == cursor.end;
}

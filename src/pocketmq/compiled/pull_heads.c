/* The header of a pull: the numbers that change with each pull, and the fields that its checks depend on.
 *
 *   "extFields":{"consumerGroup":"G","topic":"T","queueId":"1","queueOffset":"640",…,"subVersion":"17…","expressionType":"TAG"}
 *
 * Unknown fields are skipped, as in `protocol.hot_headers`. An irregular header is declined: see `json.c`.
 */

#include "json.h"

/* The order of the names below. The first nine are in every pull. */
enum { GROUP, TOPIC, QUEUE, OFFSET, COUNT, SYS_FLAG, COMMIT, SUSPEND, SUB_VERSION, SUBSCRIPTION, TYPE, MAX_BYTES, SOURCE, CLIENT, FIELDS };
enum { REQUIRED = (1 << SUBSCRIPTION) - 1 };

static const Span names[FIELDS] = {
    {(const byte *)"consumerGroup", 13}, {(const byte *)"topic", 5},
    {(const byte *)"queueId", 7},        {(const byte *)"queueOffset", 11},
    {(const byte *)"maxMsgNums", 10},    {(const byte *)"sysFlag", 7},
    {(const byte *)"commitOffset", 12},  {(const byte *)"suspendTimeoutMillis", 20},
    {(const byte *)"subVersion", 10},    {(const byte *)"subscription", 12},
    {(const byte *)"expressionType", 14}, {(const byte *)"maxMsgBytes", 11},
    {(const byte *)"requestSource", 13}, {(const byte *)"proxyFrowardClientId", 20},
};

static int field_of(Span name) {
    int field = 0;
    while (field < FIELDS && !span_is(name, names[field])) field++;
    return field;
}

/* Numbers may have leading zeros, as in Java. */
static bool read_padded(Span text, int64_t least, int64_t most, int64_t *number) {
    while (text.size > 1 && text.at[0] == '0') text = (Span){text.at + 1, text.size - 1};
    return read_number(text, least, most, number);
}

static bool set_field(PullHead *head, int field, Span value) {
    int64_t ignored;
    switch (field) {
    case GROUP: head->group = value; return true;
    case TOPIC: head->topic = value; return true;
    case QUEUE: return read_padded(value, INT32_MIN, INT32_MAX, &head->queue_id);
    case OFFSET: head->offset_text = value; return read_padded(value, INT64_MIN, INT64_MAX, &head->queue_offset);
    case COUNT: return read_padded(value, INT32_MIN, INT32_MAX, &head->most);
    case SYS_FLAG: return read_padded(value, INT32_MIN, INT32_MAX, &head->sys_flag);
    case COMMIT: return read_padded(value, INT64_MIN, INT64_MAX, &head->commit_offset);
    case SUSPEND: return read_padded(value, INT64_MIN, INT64_MAX, &ignored);
    case SUB_VERSION: return read_padded(value, INT64_MIN, INT64_MAX, &head->sub_version);
    case SUBSCRIPTION: head->subscription = value; return true;
    case TYPE: head->expression_type = value; return true;
    case MAX_BYTES: case SOURCE: return read_padded(value, INT32_MIN, INT32_MAX, &ignored);
    default: return true; /* the client behind a proxy, or a field that pulls do not have */
    }
}

static bool take_ext(Cursor *cursor, void *head) {
    uint32_t seen = 0;
    if (!take(cursor, '{')) return false;
    do {
        Span name, value;
        if (!take_plain(cursor, &name) || !take(cursor, ':') || !take_plain(cursor, &value)) return false;
        const int field = field_of(name);
        const uint32_t bit = field < FIELDS ? 1u << field : 0;
        if (seen & bit || !set_field(head, field, value)) return false;
        seen |= bit;
    } while (take(cursor, ','));
    return take(cursor, '}') && (seen & REQUIRED) == REQUIRED;
}

bool read_pull_head(Span header, PullHead *head) {
    const Span pull = TEXT("{\"code\":11"), lite = TEXT("{\"code\":361");
    Envelope envelope;
    *head = (PullHead){0};
    head->code = header.size > lite.size && header.at[lite.size - 1] == '1' && header.at[lite.size - 3] == '3' ? 361 : 11;
    if (!read_envelope(header, head->code == 11 ? pull : lite, take_ext, head, &envelope)) return false;
    head->opaque = envelope.opaque;
    head->header = header;
    head->opaque_text = envelope.opaque_text;
    return envelope.flag == 0;
}

/* Whether both have the same bytes from `at` up to `end`. */
static bool is_same(Span one, Span other, Py_ssize_t at, Py_ssize_t end) {
    return !memcmp(one.at + at, other.at + at, (size_t)(end - at));
}

bool read_next_pull_head(Span header, const PullHead *before, PullHead *head) {
    const Py_ssize_t offset_at = before->offset_text.at - before->header.at, offset_end = offset_at + before->offset_text.size;
    if (header.size != before->header.size || !before->opaque_text.at) return false;
    const Py_ssize_t opaque_at = before->opaque_text.at - before->header.at, opaque_end = opaque_at + before->opaque_text.size;
    if (opaque_at < offset_end) return false; /* clients that sort keys write the ext fields first */
    if (!is_same(header, before->header, 0, offset_at) || !is_same(header, before->header, offset_end, opaque_at) ||
        !is_same(header, before->header, opaque_end, header.size))
        return false;
    *head = *before;
    return read_padded((Span){header.at + offset_at, offset_end - offset_at}, INT64_MIN, INT64_MAX, &head->queue_offset) &&
           read_number((Span){header.at + opaque_at, opaque_end - opaque_at}, INT32_MIN, INT32_MAX, &head->opaque);
}

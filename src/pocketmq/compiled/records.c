/* The record of a message and its queue entry; the same bytes as from `protocol.record` and
 * `store.queues.consume_queue`.
 *
 *   | RecordHead | body … | topic with its length … | properties length 2 | properties … | 02? | suffix … |
 *
 * Hosts are IPv4; Python builds records with other hosts.
 */

#include "turn.h"

static bool needs_end(Span properties) { return properties.size && properties.at[properties.size - 1] != 2; }

bool plan_records(RecordPlan *plan, PyObject *suffix, PyObject *born_host, PyObject *store_host) {
    if (!span_of_bytes(suffix, &plan->suffix) || !span_of_bytes(born_host, &plan->born_host)) return false;
    if (!span_of_bytes(store_host, &plan->store_host)) return false;
    if (plan->born_host.size == 8 && plan->store_host.size == 8) return true;
    PyErr_SetString(PyExc_ValueError, "hosts must be IPv4: 8 bytes each");
    return false;
}

/* The tag's hash. The last tag counts, and the suffix has none. */
static bool find_tags_code(Span properties, int64_t *code) {
    const Span name = TEXT("TAGS\x01");
    const Py_ssize_t found = span_find_last_name(properties, name);
    *code = 0;
    if (found < 0) return true;
    const byte *start = properties.at + found + name.size, *limit = properties.at + properties.size;
    const byte *end = start < limit ? memchr(start, 2, (size_t)(limit - start)) : NULL;
    const Span tag = {start, (end ? end : limit) - start};
    *code = (int32_t)java_hash(0, tag);
    return is_utf8(tag);
}

bool measure_record(Record *record, const RecordPlan *plan) {
    const int64_t properties = (int64_t)record->properties.size + needs_end(record->properties) + plan->suffix.size;
    if (record->body.size > plan->max_body_bytes || properties > MAX_PROPERTIES) return false;
    if (record->properties.size && memchr(record->properties.at, 0, (size_t)record->properties.size)) return false;
    record->size = RECORD_HEAD + (int64_t)record->body.size + record->topic_field.size + 2 + properties;
    return record->size <= INT32_MAX && find_tags_code(record->properties, &record->tags_code);
}

void put_record(const Record *record, const RecordPlan *plan, Out *records, Out *entries) {
    if (!out_need(records, (Py_ssize_t)record->size) || !out_need(entries, ENTRY_BYTES)) return;
    RecordHead *head = (RecordHead *)(records->data + records->used);
    const bool ends = needs_end(record->properties);
    put32(head->size, (uint32_t)record->size);
    put32(head->magic, (uint32_t)record->magic);
    put32(head->body_crc, crc_of(record->body) & CRC_MASK);
    put32(head->queue_id, (uint32_t)record->queue_id);
    put32(head->flag, (uint32_t)record->flag);
    put64(head->queue_offset, (uint64_t)record->queue_offset);
    put64(head->log_offset, (uint64_t)record->log_offset);
    put32(head->sys_flag, (uint32_t)record->sys_flag);
    put64(head->born_ms, (uint64_t)record->born_ms);
    memcpy(head->born_host, plan->born_host.at, sizeof head->born_host);
    put64(head->store_ms, (uint64_t)plan->store_ms);
    memcpy(head->store_host, plan->store_host.at, sizeof head->store_host);
    put32(head->reconsume_times, (uint32_t)record->reconsume_times);
    put64(head->prepared_offset, 0);
    put32(head->body_size, (uint32_t)record->body.size);
    records->used += RECORD_HEAD;
    out_span(records, record->body);
    out_span(records, record->topic_field);
    put16(records->data + records->used, (uint32_t)(record->properties.size + ends + plan->suffix.size));
    records->used += 2;
    out_span(records, record->properties);
    if (ends) records->data[records->used++] = 2;
    out_span(records, plan->suffix);

    QueueEntry *entry = (QueueEntry *)(entries->data + entries->used);
    put64(entry->log_offset, (uint64_t)record->log_offset);
    put32(entry->size, (uint32_t)record->size);
    put64(entry->tags_code, (uint64_t)record->tags_code);
    entries->used += ENTRY_BYTES;
}

/* The record of a message and its queue entry; the same bytes as `protocol.record` and `store.consume_queue` make.
 *
 *   | size 4 | magic 4 | body crc 4 | queue id 4 | flag 4 | queue offset 8 | log offset 8 | sysFlag 4 |
 *   | born ms 8 | born host 8 | store ms 8 | store host 8 | reconsume times 4 | prepared offset 8 = 0 |
 *   | body length 4 | body … | topic with its length … | properties length 2 | properties … | 02? | suffix … |
 *
 *   | log offset 8 | size 4 | tags code 8 |
 *
 * Hosts are IPv4; records with others are made in Python.
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
    byte *at = records->data + records->used;
    const bool ends = needs_end(record->properties);
    put32(at, (uint32_t)record->size);
    put32(at + 4, (uint32_t)record->magic);
    put32(at + 8, crc_of(record->body) & 0x7FFFFFFF);
    put32(at + 12, (uint32_t)record->queue_id);
    put32(at + 16, (uint32_t)record->flag);
    put64(at + 20, (uint64_t)record->queue_offset);
    put64(at + 28, (uint64_t)record->log_offset);
    put32(at + 36, (uint32_t)record->sys_flag);
    put64(at + 40, (uint64_t)record->born_ms);
    memcpy(at + 48, plan->born_host.at, 8);
    put64(at + 56, (uint64_t)plan->store_ms);
    memcpy(at + 64, plan->store_host.at, 8);
    put32(at + 72, (uint32_t)record->reconsume_times);
    put64(at + 76, 0);
    put32(at + 84, (uint32_t)record->body.size);
    records->used += RECORD_HEAD;
    out_span(records, record->body);
    out_span(records, record->topic_field);
    put16(records->data + records->used, (uint32_t)(record->properties.size + ends + plan->suffix.size));
    records->used += 2;
    out_span(records, record->properties);
    if (ends) records->data[records->used++] = 2;
    out_span(records, plan->suffix);

    byte *entry = entries->data + entries->used;
    put64(entry, (uint64_t)record->log_offset);
    put32(entry + 8, (uint32_t)record->size);
    put64(entry + 12, (uint64_t)record->tags_code);
    entries->used += ENTRY_BYTES;
}

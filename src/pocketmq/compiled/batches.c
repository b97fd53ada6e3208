/* The messages of a batch, decoded and encoded as records in one pass.
 *
 *   | size 4 | magic 4 | crc 4 | flag 4 | body length 4 | body … | properties length 2 | properties … |   again and
 *   again
 *
 * Each size is checked against the rest of the batch before the bytes after it are read.
 */

#include "turn.h"

enum { ITEM_HEAD = 20, ITEM_FIXED = 22 };

/* Removes the first item from `rest`; false if it is invalid or irregular. */
static bool put_item(const BatchPlan *plan, Span *rest, Record *record) {
    if (rest->size < ITEM_FIXED) return false;
    const int32_t size = (int32_t)get32(rest->at), body_bytes = (int32_t)get32(rest->at + 16);
    if (size < ITEM_FIXED || size > rest->size || body_bytes < 0 || body_bytes > size - ITEM_FIXED) return false;
    const byte *body = rest->at + ITEM_HEAD;
    const Py_ssize_t properties_bytes = size - ITEM_FIXED - body_bytes;
    if ((Py_ssize_t)get16(body + body_bytes) != properties_bytes) return false;
    record->flag = (int32_t)get32(rest->at + 12);
    record->body = (Span){body, body_bytes};
    record->properties = (Span){body + body_bytes + 2, properties_bytes};
    if (!measure_record(record, plan->plan) || record->size > plan->limit - record->log_offset) return false;
    put_record(record, plan->plan, plan->records, plan->entries);
    out_span(plan->ids, plan->id_prefix);
    out_hex16(plan->ids, (uint64_t)record->log_offset);
    record->log_offset += record->size;
    record->queue_offset++;
    *rest = (Span){rest->at + size, rest->size - size};
    return !plan->records->failed && !plan->entries->failed && !plan->ids->failed;
}

Py_ssize_t put_batch(const BatchPlan *plan, Span body, Record *record) {
    Py_ssize_t items = 0;
    for (; body.size; items++) {
        if (items) out_put(plan->ids, (const byte *)",", 1);
        if (items == plan->most || !put_item(plan, &body, record)) return 0;
    }
    return items;
}

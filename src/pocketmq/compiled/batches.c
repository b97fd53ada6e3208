/* The messages of a batch, taken apart and laid out as records in one pass.
 *
 *   | size 4 | magic 4 | crc 4 | flag 4 | body length 4 | body … | properties length 2 | properties … |   again and again
 *
 * Sizes are compared with what is left of the batch before anything behind them is read.
 */

#include "turn.h"

enum { ITEM_HEAD = 20, ITEM_FIXED = 22 };

/* Takes the item at the beginning of `rest` and moves on; false when it is not sound, or nothing that can be laid out here. */
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

typedef struct {
    RecordPlan plan;
    Record record;
    Span id_prefix;
    int64_t limit;
    Out records, entries, ids;
} Batch;

/* The place is (queue, tally, magic, topic field); its queue says where it goes on. */
static bool read_place(Batch *batch, PyObject *place) {
    PyObject *queue, *tally, *topic_field;
    long long magic;
    if (!PyArg_ParseTuple(place, "OOLS", &queue, &tally, &magic, &topic_field)) return false;
    PyObject *next = PyObject_GetAttrString(queue, "next_offset");
    PyObject *queue_id = PyObject_GetAttrString(queue, "queue_id");
    if (next && queue_id) {
        batch->record.queue_offset = PyLong_AsLongLong(next);
        batch->record.queue_id = PyLong_AsLongLong(queue_id);
    }
    Py_XDECREF(next);
    Py_XDECREF(queue_id);
    batch->record.magic = magic;
    return !PyErr_Occurred() && span_of_bytes(topic_field, &batch->record.topic_field);
}

static bool read_arguments(Batch *batch, PyObject *const *arguments, Span *body, Py_ssize_t *most) {
    PyObject *suffix, *answer, *id_prefix, *store_host;
    long long max_body_bytes;
    int waits;
    if (!span_of_bytes(arguments[0], body)) return false;
    if (!PyTuple_Check(arguments[2]) || !PyTuple_Check(arguments[3])) {
        PyErr_SetString(PyExc_TypeError, "a place and a plan are tuples");
        return false;
    }
    if (!PyArg_ParseTuple(arguments[3], "SOSSLp", &suffix, &answer, &id_prefix, &store_host, &max_body_bytes, &waits)) return false;
    if (!plan_records(&batch->plan, suffix, arguments[4], store_host) || !span_of_bytes(id_prefix, &batch->id_prefix)) return false;
    *most = PyLong_AsSsize_t(arguments[1]);
    batch->plan.max_body_bytes = max_body_bytes;
    batch->record.sys_flag = PyLong_AsLongLong(arguments[5]) & CLIENT_FLAGS;
    batch->record.born_ms = PyLong_AsLongLong(arguments[6]);
    batch->plan.store_ms = PyLong_AsLongLong(arguments[7]);
    batch->record.log_offset = PyLong_AsLongLong(arguments[8]);
    batch->limit = PyLong_AsLongLong(arguments[9]);
    return !PyErr_Occurred() && read_place(batch, arguments[2]);
}

/* lay_out_batch(body, most, place, plan, born_host, sys_flag, born_ms, store_ms, log_offset, limit)
 *     -> (how many messages, their records, where these end, queue entries, message ids), or None for Python to look at it */
PyObject *lay_out_batch(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (count != 10) return PyErr_Format(PyExc_TypeError, "lay_out_batch takes 10 arguments, got %zd", count);
    Batch batch = {0};
    Span body;
    Py_ssize_t most;
    if (!read_arguments(&batch, arguments, &body, &most)) return NULL;
    const BatchPlan plan = {&batch.plan, batch.id_prefix, batch.limit, most, &batch.records, &batch.entries, &batch.ids};
    const Py_ssize_t items = put_batch(&plan, body, &batch.record);
    PyObject *found = NULL;
    if (!PyErr_Occurred())
        found = !items ? Py_NewRef(Py_None)
                       : Py_BuildValue("(nNLNN)", items, out_bytes(&batch.records), (long long)batch.record.log_offset,
                                       out_bytes(&batch.entries), out_bytes(&batch.ids));
    out_free(&batch.records);
    out_free(&batch.entries);
    out_free(&batch.ids);
    return found;
}

/* Serves all regular sends of a turn in one call: reads heads, encodes records, builds queue entries and answers.
 *
 *   frames from `at` on ── regular? ──► record │ entry │ answer     the first irregular one ends the run; Python
 *   serves it
 *
 * This stores nothing: Python adds the records to the store's turn, advances the queues, counts, and sends the answers
 * when the
 * turn is written.
 *
 * A `SendQueue` is a queue that accepts sends, found by `topic/queue id`. Python keeps the table and clears it when a
 * topic or a setting
 * changes.
 */

#include "turn.h"

enum { MAX_TOUCHED = 64, LONGEST_KEY = 300 };
/* The fields of `compiled.SendQueue`. */
enum { SEND_QUEUE, SEND_TALLY, SEND_MAGIC, SEND_TOPIC_FIELD, SEND_PARTS };
/* The texts of an answer, each named after the value that follows it: `protocol.hot_headers.SendReplies.parts`. */
enum { BEFORE_IDS, BEFORE_QUEUE_ID, BEFORE_QUEUE_OFFSET, BEFORE_UNIQUE_KEY, BEFORE_OPAQUE, BEFORE_END, ANSWER_PARTS };

/* A queue to which this run sends. */
typedef struct {
    Span topic, queue_text;
    PyObject *queue;
    Record record; /* values that all records of this queue share */
    Out entries;
    int64_t body_bytes, joined; /* joined: messages that came with another one, in a batch */
} Touched;

typedef struct {
    PyObject *send_queues, *next_id;
    RecordPlan plan;
    Span answer[ANSWER_PARTS], id_prefix;
    bool waits; /* sends are answered after a sync, unless they request otherwise */
    int64_t log_offset, limit;
    Py_ssize_t most_items;
    Out records, answers, scratch, ids;
    Touched *touched;
    int touched_count;
} Run;

/* Opens the queue of a topic and queue id for this run. False if it is unknown, or with an error set. */
static bool open_queue(Run *run, const SendHead *head, Touched *touched) {
    byte key[LONGEST_KEY];
    if (head->topic.size + head->queue_text.size >= LONGEST_KEY) return false;
    memcpy(key, head->topic.at, (size_t)head->topic.size);
    key[head->topic.size] = '/';
    memcpy(key + head->topic.size + 1, head->queue_text.at, (size_t)head->queue_text.size);
    PyObject *name = PyBytes_FromStringAndSize((const char *)key, head->topic.size + 1 + head->queue_text.size);
    if (!name) return false;
    PyObject *queue = PyDict_GetItemWithError(run->send_queues, name);
    Py_DECREF(name);
    if (!queue) return false;
    if (!PyTuple_Check(queue) || PyTuple_Size(queue) != SEND_PARTS) {
        PyErr_SetString(PyExc_TypeError, "a send queue must be a tuple of queue, tally, magic and topic field");
        return false;
    }
    PyObject *next = PyObject_GetAttrString(PyTuple_GetItem(queue, SEND_QUEUE), "next_offset");
    if (!next) return false;
    *touched = (Touched){.topic = head->topic, .queue_text = head->queue_text, .queue = queue};
    touched->record.queue_offset = PyLong_AsLongLong(next);
    Py_DECREF(next);
    touched->record.magic = PyLong_AsLongLong(PyTuple_GetItem(queue, SEND_MAGIC));
    touched->record.queue_id = head->queue_id;
    if (PyErr_Occurred() || !span_of_bytes(PyTuple_GetItem(queue, SEND_TOPIC_FIELD), &touched->record.topic_field)) return false;
    Py_INCREF(queue);
    return true;
}

static Touched *touch(Run *run, const SendHead *head) {
    for (int number = 0; number < run->touched_count; number++) {
        Touched *touched = &run->touched[number];
        if (span_is(touched->queue_text, head->queue_text) && span_is(touched->topic, head->topic)) return touched;
    }
    if (run->touched_count == MAX_TOUCHED || !open_queue(run, head, &run->touched[run->touched_count])) return NULL;
    return &run->touched[run->touched_count++];
}

/* The unique key, if an answer can contain it unescaped. The first property of this name must be one. */
static bool find_unique_key(Span properties, Span *key) {
    const Span name = TEXT("UNIQ_KEY\x01");
    const Py_ssize_t found = span_find(properties, name);
    if (found < 0 || (found && properties.at[found - 1] != 2)) return false;
    const byte *start = properties.at + found + name.size, *limit = properties.at + properties.size, *end = start;
    for (; end < limit && *end != 2; end++)
        if (*end < 0x20 || *end > 0x7E || *end == '"' || *end == '\\') return false;
    *key = (Span){start, end - start};
    return key->size > 0;
}

/* Properties of irregular messages: DELAY and TIMER_*, half messages, pop checkpoints. */
static bool takes_detour(Span properties) {
    return span_holds(properties, TEXT("DEL")) || span_holds(properties, TEXT("TRAN_MSG")) || span_holds(properties, TEXT("POP_CK"));
}

/* The answer to a send or a batch: its message ids, and the position of the first message. */
static void put_answer(Run *run, const SendHead *head, Span ids, int64_t queue_offset, Span unique_key) {
    Out *out = &run->answers;
    if (!out_need(out, 8)) return;
    const Py_ssize_t start = out->used;
    out->used += 8;
    out_span(out, run->answer[BEFORE_IDS]);
    out_span(out, ids);
    out_span(out, run->answer[BEFORE_QUEUE_ID]);
    out_number(out, head->queue_id);
    out_span(out, run->answer[BEFORE_QUEUE_OFFSET]);
    out_number(out, queue_offset);
    out_span(out, run->answer[BEFORE_UNIQUE_KEY]);
    out_span(out, unique_key);
    out_span(out, run->answer[BEFORE_OPAQUE]);
    out_number(out, head->opaque);
    out_span(out, run->answer[BEFORE_END]);
    if (out->failed) return;
    const uint32_t header_bytes = (uint32_t)(out->used - start - 8); /* high byte 0: JSON, for the whole answer */
    put32(out->data + start, 4 + header_bytes);
    put32(out->data + start + 4, header_bytes);
}

/* Encodes one message; false if it is irregular, if the log has no space for it here, or with an error set. */
static bool put_single(Run *run, const SendHead *head, Span body, Touched *touched, Record *record) {
    Span unique_key;
    if (!body.size || !find_unique_key(head->properties, &unique_key)) return false;
    record->body = body;
    record->properties = head->properties;
    record->flag = head->flag;
    record->reconsume_times = head->reconsume_times;
    if (!measure_record(record, &run->plan) || record->size > run->limit - run->log_offset) return false;
    put_record(record, &run->plan, &run->records, &touched->entries);
    run->ids.used = 0;
    if (!head->oneway) {
        out_span(&run->ids, run->id_prefix);
        out_hex16(&run->ids, (uint64_t)record->log_offset);
        put_answer(run, head, (Span){run->ids.data, run->ids.used}, record->queue_offset, unique_key);
    }
    record->log_offset += record->size;
    record->queue_offset++;
    return true;
}

/* The unique key of a batch, or a new one, which is kept in `made`. False if an answer cannot contain it. */
static bool key_of_batch(Run *run, Span properties, PyObject **made, Span *key) {
    const Py_ssize_t found = span_find(properties, TEXT("UNIQ_KEY"));
    if (found >= 0) { /* of several keys, the last counts in a batch and the first in a send: left to Python */
        const Span behind = {properties.at + found + 1, properties.size - found - 1};
        return !span_holds(behind, TEXT("UNIQ_KEY")) && find_unique_key(properties, key);
    }
    *made = PyObject_CallNoArgs(run->next_id);
    return *made && span_of_bytes(*made, key);
}

/* Encodes a batch, completely or not at all; false likewise. */
static bool put_whole_batch(Run *run, const SendHead *head, Span body, Touched *touched, Record *record) {
    const Py_ssize_t records_before = run->records.used, entries_before = touched->entries.used;
    const BatchPlan plan = {&run->plan, run->id_prefix, run->limit, run->most_items, &run->records, &touched->entries, &run->ids};
    const int64_t first = record->queue_offset;
    Span unique_key;
    PyObject *made = NULL;
    if (body.size > run->plan.max_body_bytes) return false;
    run->ids.used = 0;
    const Py_ssize_t items = put_batch(&plan, body, record);
    const bool done = items && key_of_batch(run, head->properties, &made, &unique_key);
    if (done && !head->oneway) put_answer(run, head, (Span){run->ids.data, run->ids.used}, first, unique_key);
    Py_XDECREF(made);
    if (!done) {
        run->records.used = records_before;
        touched->entries.used = entries_before;
        return false;
    }
    touched->joined += items - 1;
    return true;
}

/* Adds one frame to the run; false if it is irregular, if the log has no space for it here, or with an error set. */
static bool take_send(Run *run, PyObject *frame) {
    Span header, body;
    SendHead head;
    if (!read_frame(frame, &header, &body)) return false;
    if (!read_send_head(header, &run->scratch, &head) || takes_detour(head.properties)) return false;
    if (run->waits && span_holds(head.properties, TEXT("WAIT\x01" "false"))) return false;
    Touched *touched = touch(run, &head);
    if (!touched) return false;
    Record record = touched->record;
    record.sys_flag = head.sys_flag & CLIENT_FLAGS;
    record.born_ms = head.born_ms;
    record.log_offset = run->log_offset;
    if (!(head.batch ? put_whole_batch : put_single)(run, &head, body, touched, &record)) return false;
    run->log_offset = record.log_offset;
    touched->record.queue_offset = record.queue_offset;
    touched->body_bytes += body.size;
    return !run->records.failed && !touched->entries.failed && !run->answers.failed && !run->ids.failed;
}

/* A queue that was opened for a send that was then declined has no entries, and is removed. */
static PyObject *queue_list(Run *run) {
    PyObject *queues = PyList_New(0);
    for (int number = 0; queues && number < run->touched_count; number++) {
        Touched *touched = &run->touched[number];
        if (!touched->entries.used) continue;
        PyObject *one = Py_BuildValue("(ONLL)", touched->queue, out_bytes(&touched->entries), (long long)touched->body_bytes, (long long)touched->joined);
        if (!one || PyList_Append(queues, one) < 0) Py_CLEAR(queues);
        Py_XDECREF(one);
    }
    return queues;
}

/* (number of frames, their records, their end in the log, [(send queue, queue entries, bytes of bodies, joined)],
   answers) */
static PyObject *outcome(Run *run, Py_ssize_t taken) {
    PyObject *queues = queue_list(run);
    if (!queues) return NULL;
    return Py_BuildValue("(nNLNN)", taken, out_bytes(&run->records), (long long)run->log_offset, queues, out_bytes(&run->answers));
}

static bool read_plan(Run *run, PyObject *plan, PyObject *born_host) {
    PyObject *answer;
    PyObject *suffix, *id_prefix, *store_host;
    long long max_body_bytes;
    int waits;
    if (!PyArg_ParseTuple(plan, "SO!SSLp", &suffix, &PyTuple_Type, &answer, &id_prefix, &store_host, &max_body_bytes, &waits)) return false;
    if (!plan_records(&run->plan, suffix, born_host, store_host) || !span_of_bytes(id_prefix, &run->id_prefix)) return false;
    if (PyTuple_Size(answer) != ANSWER_PARTS) {
        PyErr_Format(PyExc_ValueError, "an answer must have %d parts", ANSWER_PARTS);
        return false;
    }
    for (int part = 0; part < ANSWER_PARTS; part++)
        if (!span_of_bytes(PyTuple_GetItem(answer, part), &run->answer[part])) return false;
    run->plan.max_body_bytes = max_body_bytes;
    run->waits = waits;
    return true;
}

static void close_run(Run *run) {
    for (int number = 0; number < run->touched_count; number++) {
        out_free(&run->touched[number].entries);
        Py_DECREF(run->touched[number].queue);
    }
    out_free(&run->records);
    out_free(&run->answers);
    out_free(&run->scratch);
    out_free(&run->ids);
}

/* lay_out_sends(frames, at, most, send_queues, plan, born_host, store_ms, log_offset, limit, most_items, next_id)
 *     -> result, or None if the first is irregular
 *
 * It serves at most `most` frames. A batch has at most `most_items` messages, and gets a unique key from `next_id` if
 * it has none.
 */
PyObject *lay_out_sends(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    enum { FRAMES, AT, MOST, SEND_QUEUES, PLAN, BORN_HOST, STORE_MS, LOG_OFFSET, LIMIT, MOST_ITEMS, NEXT_ID, ARGUMENTS };
    (void)module;
    if (count != ARGUMENTS) return PyErr_Format(PyExc_TypeError, "lay_out_sends takes %d arguments, got %zd", ARGUMENTS, count);
    PyObject *frames = arguments[FRAMES];
    if (!PyList_Check(frames) || !PyDict_Check(arguments[SEND_QUEUES]) || !PyTuple_Check(arguments[PLAN]))
        return PyErr_Format(PyExc_TypeError, "frames must be a list, send queues a dict, the plan a tuple");
    Touched touched[MAX_TOUCHED]; /* filled one by one, when a queue is used first */
    Run run = {.send_queues = arguments[SEND_QUEUES], .touched = touched, .next_id = arguments[NEXT_ID]};
    Py_ssize_t at = PyLong_AsSsize_t(arguments[AT]);
    const Py_ssize_t most = PyLong_AsSsize_t(arguments[MOST]);
    run.plan.store_ms = PyLong_AsLongLong(arguments[STORE_MS]);
    run.log_offset = PyLong_AsLongLong(arguments[LOG_OFFSET]);
    run.limit = PyLong_AsLongLong(arguments[LIMIT]);
    run.most_items = PyLong_AsSsize_t(arguments[MOST_ITEMS]);
    if (PyErr_Occurred() || !read_plan(&run, arguments[PLAN], arguments[BORN_HOST])) return NULL;
    if (at < 0 || most < 0 || run.log_offset < 0) return PyErr_Format(PyExc_ValueError, "offsets must not be negative");
    const Py_ssize_t first = at;
    while (at - first < most && at < PyList_Size(frames)) {
        PyObject *frame = Py_NewRef(PyList_GetItem(frames, at)); /* creating a key calls Python, which could change
                                                                    the list */
        const bool taken = take_send(&run, frame);
        Py_DECREF(frame);
        if (!taken) break;
        at++;
    }
    PyObject *found = NULL;
    if (!PyErr_Occurred()) found = at > first ? outcome(&run, at - first) : Py_NewRef(Py_None);
    close_run(&run);
    return found;
}

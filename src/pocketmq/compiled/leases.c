/* Acks of a turn, and the records of leases: check points and acks.
 *
 *   read_acks       frames from `at` on ── regular acks? ──► offsets by lease │ answers     the first irregular one ends the run
 *   lay_out_lease   a lease ──► the record of its check point or ack in the timer's topic │ queue entry
 *
 * This stores nothing: Python checks the leases, adds the records to the store's turn, and sends the answers when the turn is written.
 */

#include "json.h"

/* The head of an ack: `protocol.api.messages.AckMessage`. */
enum { GROUP, TOPIC, QUEUE, HANDLE, OFFSET, FIELDS };

static const Span names[FIELDS] = {
    {(const byte *)"consumerGroup", 13}, {(const byte *)"topic", 5},  {(const byte *)"queueId", 7},
    {(const byte *)"extraInfo", 9},      {(const byte *)"offset", 6},
};

typedef struct {
    Span group, topic, lease; /* `lease`: the receipt handle without its last word, the offset */
    int64_t queue_id, offset;
} AckHead;

static bool is_plain(Span text) {
    for (Py_ssize_t at = 0; at < text.size; at++)
        if (text.at[at] < 0x20 || text.at[at] > 0x7E || text.at[at] == '"' || text.at[at] == '\\') return false;
    return true;
}

/* Cuts the last word, which must be a number, from a receipt handle. */
static bool cut_offset(Span handle, Span *lease) {
    Py_ssize_t at = handle.size;
    while (at && handle.at[at - 1] >= '0' && handle.at[at - 1] <= '9') at--;
    if (at == handle.size || !at || handle.at[at - 1] != ' ') return false;
    *lease = (Span){handle.at, at - 1};
    return true;
}

static bool set_field(AckHead *head, int field, Span value) {
    switch (field) {
    case GROUP: head->group = value; return true;
    case TOPIC: head->topic = value; return true;
    case QUEUE: return read_number(value, 0, INT32_MAX, &head->queue_id);
    case HANDLE: return cut_offset(value, &head->lease);
    default: return read_number(value, 0, INT64_MAX, &head->offset);
    }
}

static bool take_ext(Cursor *cursor, void *head) {
    uint32_t seen = 0;
    if (!take(cursor, '{')) return false;
    do {
        Span name, value;
        if (!take_plain(cursor, &name) || !take(cursor, ':') || !take_plain(cursor, &value)) return false;
        int field = 0;
        while (field < FIELDS && !span_is(name, names[field])) field++;
        if (field == FIELDS) continue; /* a field that acks do not need */
        const uint32_t bit = 1u << field;
        if (seen & bit || !set_field(head, field, value)) return false;
        seen |= bit;
    } while (take(cursor, ','));
    return take(cursor, '}') && seen == (1 << FIELDS) - 1;
}

enum { MAX_LEASES = 64 };

/* The acks of one lease; the spans are in the headers of the frames. */
typedef struct {
    AckHead head;
    Py_ssize_t first; /* the number of its first frame */
    PyObject *offsets;
} Acked;

typedef struct {
    Acked leases[MAX_LEASES];
    int count;
    Span before_opaque, after_opaque;
    Out answers;
} AckRun;

static bool is_same_lease(const AckHead *one, const AckHead *other) {
    return one->queue_id == other->queue_id && span_is(one->lease, other->lease) && span_is(one->topic, other->topic) &&
           span_is(one->group, other->group);
}

/* The lease of an ack, which usually is the one of the ack before; NULL if there are too many, or with an error set. */
static Acked *lease_of(AckRun *run, const AckHead *head, Py_ssize_t number) {
    for (int at = run->count; at-- > 0;)
        if (is_same_lease(&run->leases[at].head, head)) return &run->leases[at];
    if (run->count == MAX_LEASES) return NULL;
    Acked *added = &run->leases[run->count];
    *added = (Acked){*head, number, PyList_New(0)};
    if (!added->offsets) return NULL;
    run->count++;
    return added;
}

static void put_ack_answer(AckRun *run, int64_t opaque) {
    Out *out = &run->answers;
    if (!out_need(out, 8)) return;
    const Py_ssize_t start = out->used;
    out->used += 8;
    out_span(out, run->before_opaque);
    out_number(out, opaque);
    out_span(out, run->after_opaque);
    if (out->failed) return;
    const uint32_t header_bytes = (uint32_t)(out->used - start - 8);
    put32(out->data + start, 4 + header_bytes);
    put32(out->data + start + 4, header_bytes);
}

/* Adds one frame to the run; false if it is irregular, or with an error set. */
static bool take_ack(AckRun *run, PyObject *frame, Py_ssize_t number) {
    Span header, body;
    AckHead head = {0};
    Envelope envelope;
    if (!read_frame(frame, &header, &body)) return false;
    if (!read_envelope(header, TEXT("{\"code\":200051"), take_ext, &head, &envelope)) return false;
    if (envelope.flag != 0 && envelope.flag != 2) return false;
    Acked *lease = lease_of(run, &head, number);
    if (!lease) return false;
    PyObject *offset = PyLong_FromLongLong(head.offset);
    const bool added = offset && PyList_Append(lease->offsets, offset) == 0;
    Py_XDECREF(offset);
    if (added && envelope.flag == 0) put_ack_answer(run, envelope.opaque);
    return added && !run->answers.failed;
}

static PyObject *text_of(Span span) { return PyUnicode_FromStringAndSize((const char *)span.at, span.size); }

/* [(group, topic, queue id, lease, number of the first frame, offsets)] */
static PyObject *acked_leases(const AckRun *run) {
    PyObject *leases = PyList_New(0);
    for (int at = 0; leases && at < run->count; at++) {
        const Acked *one = &run->leases[at];
        const AckHead *head = &one->head;
        PyObject *lease = Py_BuildValue("(NNLNnO)", text_of(head->group), text_of(head->topic), (long long)head->queue_id, text_of(head->lease), one->first, one->offsets);
        if (!lease || PyList_Append(leases, lease) < 0) Py_CLEAR(leases);
        Py_XDECREF(lease);
    }
    return leases;
}

/* read_acks(frames, at, most, answer) -> (number of frames, leases, answers), or None if the first is irregular
 *
 * `answer` has the texts before and after the opaque.
 */
PyObject *read_acks(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    enum { FRAMES, AT, MOST, ANSWER, ARGUMENTS };
    (void)module;
    if (count != ARGUMENTS) return PyErr_Format(PyExc_TypeError, "read_acks takes %d arguments, got %zd", ARGUMENTS, count);
    PyObject *frames = arguments[FRAMES], *answer = arguments[ANSWER];
    if (!PyList_Check(frames) || !PyTuple_Check(answer) || PyTuple_Size(answer) != 2)
        return PyErr_Format(PyExc_TypeError, "frames must be a list, the answer a tuple of two");
    AckRun run;
    run.count = 0;
    run.answers = (Out){0};
    if (!span_of_bytes(PyTuple_GetItem(answer, 0), &run.before_opaque) || !span_of_bytes(PyTuple_GetItem(answer, 1), &run.after_opaque)) return NULL;
    const Py_ssize_t first = PyLong_AsSsize_t(arguments[AT]), most = PyLong_AsSsize_t(arguments[MOST]);
    if (PyErr_Occurred()) return NULL;
    if (first < 0) return PyErr_Format(PyExc_ValueError, "the first frame must not be negative");
    Py_ssize_t taken = 0;
    while (taken < most && taken < PyList_Size(frames) - first && take_ack(&run, PyList_GetItem(frames, first + taken), taken)) taken++;
    PyObject *found = NULL;
    if (!PyErr_Occurred()) {
        PyObject *leases = taken ? acked_leases(&run) : Py_NewRef(Py_None);
        if (leases) found = taken ? Py_BuildValue("(nNN)", taken, leases, out_bytes(&run.answers)) : leases;
    }
    for (int at = 0; at < run.count; at++) Py_DECREF(run.leases[at].offsets);
    out_free(&run.answers);
    return found;
}

/* A lease, or an ack of some of its messages: `protocol.pop.CheckPoint` and `Ack`. */
typedef struct {
    Span group, topic, broker, revive_topic;
    int64_t queue_id, start, pop_ms, invisible_ms, revive_queue, due_ms, out_ms;
    int64_t count;
    int64_t first; /* the only offset of an ack */
    bool is_ack, irregular;
    Out offsets; /* as texts: distances of a check point, "1,2"; offsets of an ack, "1, 2" in its key */
    Out key_offsets;
} Lease;

static void out_text(Out *out, const char *text) { out_put(out, (const byte *)text, (Py_ssize_t)strlen(text)); }

static void out_field(Out *out, const char *before, int64_t number) {
    out_text(out, before);
    out_number(out, number);
}

static void out_quoted(Out *out, const char *before, Span text) {
    out_text(out, before);
    out_text(out, "\"");
    out_span(out, text);
    out_text(out, "\"");
}

/* Reads the offsets into their texts; false with an error set. */
static bool read_offsets(PyObject *offsets, Lease *lease) {
    PyObject *each = PyObject_GetIter(offsets);
    if (!each) return false;
    for (PyObject *item; (item = PyIter_Next(each)); lease->count++) {
        const int64_t offset = PyLong_AsLongLong(item);
        Py_DECREF(item);
        if (offset == -1 && PyErr_Occurred()) break;
        lease->irregular |= offset < lease->start; /* of another lease */
        if (!lease->count) {
            lease->first = offset;
        } else {
            out_text(&lease->offsets, ",");
            if (lease->is_ack) out_text(&lease->key_offsets, ", ");
        }
        out_number(&lease->offsets, lease->is_ack || lease->irregular ? offset : offset - lease->start);
        if (lease->is_ack) out_number(&lease->key_offsets, offset);
    }
    Py_DECREF(each);
    return !PyErr_Occurred();
}

static void put_lease_body(const Lease *lease, Out *out) {
    const Span offsets = {lease->offsets.data, lease->offsets.used};
    if (lease->is_ack) {
        out_field(out, "{\"ao\":", lease->count == 1 ? lease->first : -1);
        if (lease->count != 1) {
            out_text(out, ",\"aol\":[");
            out_span(out, offsets);
            out_text(out, "]");
        }
    } else {
        out_text(out, "{\"bm\":0");
    }
    out_quoted(out, ",\"bn\":", lease->broker);
    out_quoted(out, ",\"c\":", lease->group);
    if (!lease->is_ack) {
        out_text(out, ",\"d\":[");
        out_span(out, offsets);
        out_field(out, "],\"it\":", lease->invisible_ms);
        out_field(out, ",\"n\":", lease->count);
    }
    out_field(out, ",\"pt\":", lease->pop_ms);
    out_field(out, ",\"q\":", lease->queue_id);
    if (!lease->is_ack) {
        out_field(out, ",\"reviveTime\":", lease->pop_ms + lease->invisible_ms);
        out_text(out, ",\"ro\":0");
    }
    out_field(out, ",\"so\":", lease->start);
    out_quoted(out, ",\"t\":", lease->topic);
    out_text(out, "}");
}

static void put_lease_properties(const Lease *lease, Out *out) {
    const char *tag = !lease->is_ack ? "ck" : lease->count == 1 ? "ack" : "bAck";
    out_text(out, "TAGS\x01");
    out_text(out, tag);
    out_text(out, "\x02UNIQ_KEY\x01");
    out_span(out, lease->topic);
    out_field(out, "@", lease->queue_id);
    out_text(out, "@");
    if (!lease->is_ack) {
        out_number(out, lease->start);
    } else {
        if (lease->count != 1) out_text(out, "[");
        out_span(out, (Span){lease->key_offsets.data, lease->key_offsets.used});
        if (lease->count != 1) out_text(out, "]");
    }
    out_text(out, "@");
    out_span(out, lease->group);
    out_field(out, "@", lease->pop_ms);
    out_text(out, "@");
    out_span(out, lease->broker);
    out_text(out, "@");
    out_text(out, tag);
    out_field(out, "\x02TIMER_DELIVER_MS\x01", lease->due_ms);
    out_field(out, "\x02TIMER_OUT_MS\x01", lease->out_ms);
    out_text(out, "\x02REAL_TOPIC\x01");
    out_span(out, lease->revive_topic);
    out_field(out, "\x02REAL_QID\x01", lease->revive_queue);
    out_text(out, "\x02");
}

static bool read_text(PyObject *text, Span *span) {
    span->at = (const byte *)PyUnicode_AsUTF8AndSize(text, &span->size);
    return span->at != NULL;
}

/* The values that all leases share: broker, revive topic, topic field and magic number of the records, packed store host. */
static bool read_lease_plan(PyObject *plan, Lease *lease, Record *record, RecordPlan *shared, PyObject *empty) {
    PyObject *broker, *revive_topic, *topic_field, *store_host;
    long long magic;
    if (!PyArg_ParseTuple(plan, "UUSLS", &broker, &revive_topic, &topic_field, &magic, &store_host)) return false;
    record->magic = magic;
    shared->max_body_bytes = INT32_MAX;
    return read_text(broker, &lease->broker) && read_text(revive_topic, &lease->revive_topic) && span_of_bytes(topic_field, &record->topic_field) &&
           plan_records(shared, empty, store_host, store_host);
}

/* Encodes the record; None if Python must, NULL with an error set. */
static PyObject *laid_out(Lease *lease, Record *record, const RecordPlan *shared, int64_t limit) {
    Out body = {0}, properties = {0}, bytes = {0}, entry = {0};
    PyObject *found = NULL;
    put_lease_body(lease, &body);
    put_lease_properties(lease, &properties);
    if (body.failed || properties.failed || lease->offsets.failed || lease->key_offsets.failed) goto done;
    record->body = (Span){body.data, body.used};
    record->properties = (Span){properties.data, properties.used};
    if (!measure_record(record, shared) || record->size > limit - record->log_offset) {
        if (!PyErr_Occurred()) found = Py_NewRef(Py_None);
        goto done;
    }
    put_record(record, shared, &bytes, &entry);
    if (!bytes.failed && !entry.failed) found = Py_BuildValue("(NN)", out_bytes(&bytes), out_bytes(&entry));
done:
    out_free(&body);
    out_free(&properties);
    out_free(&bytes);
    out_free(&entry);
    return found;
}

/* lay_out_lease(is_ack, group, topic, offsets, numbers, position, plan) -> (record, queue entry), or None if it is irregular
 *
 * numbers: queue id, start, pop time, invisible time, revive queue, due time, its second
 * position: birth time, store time, queue offset, log offset, limit of the log
 */
PyObject *lay_out_lease(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    enum { IS_ACK, GROUP_TEXT, TOPIC_TEXT, OFFSETS, NUMBERS, POSITION, PLAN, ARGUMENTS };
    (void)module;
    if (count != ARGUMENTS) return PyErr_Format(PyExc_TypeError, "lay_out_lease takes %d arguments, got %zd", ARGUMENTS, count);
    for (int at = NUMBERS; at <= PLAN; at++)
        if (!PyTuple_Check(arguments[at])) return PyErr_Format(PyExc_TypeError, "numbers, position and plan must be tuples");
    Lease lease = {.is_ack = PyObject_IsTrue(arguments[IS_ACK]) == 1};
    Record record = {0};
    RecordPlan shared = {0};
    long long queue_id, start, pop_ms, invisible_ms, revive_queue, due_ms, out_ms, born_ms, store_ms, queue_offset, log_offset, limit;
    if (!read_text(arguments[GROUP_TEXT], &lease.group) || !read_text(arguments[TOPIC_TEXT], &lease.topic)) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) return NULL;
        PyErr_Clear(); /* unpaired surrogates */
        return Py_NewRef(Py_None);
    }
    if (!PyArg_ParseTuple(arguments[NUMBERS], "LLLLLLL", &queue_id, &start, &pop_ms, &invisible_ms, &revive_queue, &due_ms, &out_ms)) return NULL;
    if (!PyArg_ParseTuple(arguments[POSITION], "LLLLL", &born_ms, &store_ms, &queue_offset, &log_offset, &limit)) return NULL;
    PyObject *empty = PyBytes_FromStringAndSize(NULL, 0), *found = NULL;
    if (!empty || !read_lease_plan(arguments[PLAN], &lease, &record, &shared, empty)) goto done;
    if (!is_plain(lease.group) || !is_plain(lease.topic) || !is_plain(lease.broker) || !is_plain(lease.revive_topic) || log_offset < 0 ||
        start < 0 || pop_ms < 0 || invisible_ms < 0 || pop_ms > INT64_MAX - invisible_ms) {
        found = Py_NewRef(Py_None);
        goto done;
    }
    lease.queue_id = queue_id;
    lease.start = start;
    lease.pop_ms = pop_ms;
    lease.invisible_ms = invisible_ms;
    lease.revive_queue = revive_queue;
    lease.due_ms = due_ms;
    lease.out_ms = out_ms;
    record.born_ms = born_ms;
    shared.store_ms = store_ms;
    record.queue_offset = queue_offset;
    record.log_offset = log_offset;
    if (read_offsets(arguments[OFFSETS], &lease)) found = lease.irregular ? Py_NewRef(Py_None) : laid_out(&lease, &record, &shared, limit);
done:
    Py_XDECREF(empty);
    out_free(&lease.offsets);
    out_free(&lease.key_offsets);
    return found;
}

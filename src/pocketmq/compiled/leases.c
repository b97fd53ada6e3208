/* The records of leases: check points and acks, as `protocol.pop` encodes them.
 *
 *   lay_out_lease    a lease, or acknowledged offsets of one ──► the record in the timer's topic │ queue entry
 *   lease_messages   entries of a queue ──► the same for the check point of their messages │ the answer of the pop
 *
 * This stores nothing: Python chooses the queue, adds the record to the store's turn, and sends the answer when that is written.
 */

#include "turn.h"

static bool is_plain(Span text) {
    for (Py_ssize_t at = 0; at < text.size; at++)
        if (text.at[at] < 0x20 || text.at[at] > 0x7E || text.at[at] == '"' || text.at[at] == '\\') return false;
    return true;
}

/* A lease, or an ack of some of its messages: `protocol.pop.CheckPoint` and `Ack`. */
typedef struct {
    Span group, topic, broker, revive_topic;
    int64_t queue_id, start, pop_ms, invisible_ms, revive_queue, due_ms, out_ms;
    int64_t count;
    int64_t first; /* the only offset of an ack */
    bool is_ack, irregular;
    Out offsets;      /* in its body: distances of a check point, offsets of an ack, "1,2" */
    Out long_offsets; /* in the key of an ack, "1, 2"; in the answer of a pop, "1,2" */
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

static void add_offset(Lease *lease, int64_t offset) {
    lease->irregular |= offset < lease->start; /* of another lease */
    if (!lease->count++) {
        lease->first = offset;
    } else {
        out_text(&lease->offsets, ",");
        out_text(&lease->long_offsets, lease->is_ack ? ", " : ",");
    }
    out_number(&lease->offsets, lease->is_ack || lease->irregular ? offset : offset - lease->start);
    out_number(&lease->long_offsets, offset);
}

/* Reads the offsets into their texts; false with an error set. */
static bool read_offsets(PyObject *offsets, Lease *lease) {
    PyObject *each = PyObject_GetIter(offsets);
    if (!each) return false;
    for (PyObject *item; (item = PyIter_Next(each));) {
        const int64_t offset = PyLong_AsLongLong(item);
        Py_DECREF(item);
        if (offset == -1 && PyErr_Occurred()) break;
        add_offset(lease, offset);
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
        out_span(out, (Span){lease->long_offsets.data, lease->long_offsets.used});
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

/* Fills a lease; false if it is irregular, or with an error set.
 *
 * texts: group, topic
 * numbers: queue id, start, pop time, invisible time, revive queue, due time, its second
 * position: birth time, store time, queue offset, log offset, limit of the log
 * plan: broker, revive topic, topic field and magic number of the records, packed store host
 */
typedef struct {
    PyObject *group, *topic, *numbers, *position, *plan;
} LeaseArguments;

static bool read_lease(const LeaseArguments *from, Lease *lease, Record *record, RecordPlan *shared, int64_t *limit) {
    PyObject *broker, *revive_topic, *topic_field, *store_host;
    long long queue_id, start, pop_ms, invisible_ms, revive_queue, due_ms, out_ms, born_ms, store_ms, queue_offset, log_offset, end, magic;
    if (!PyTuple_Check(from->numbers) || !PyTuple_Check(from->position) || !PyTuple_Check(from->plan)) {
        PyErr_SetString(PyExc_TypeError, "numbers, position and plan of a lease must be tuples");
        return false;
    }
    if (!PyArg_ParseTuple(from->numbers, "LLLLLLL", &queue_id, &start, &pop_ms, &invisible_ms, &revive_queue, &due_ms, &out_ms)) return false;
    if (!PyArg_ParseTuple(from->position, "LLLLL", &born_ms, &store_ms, &queue_offset, &log_offset, &end)) return false;
    if (!PyArg_ParseTuple(from->plan, "UUSLS", &broker, &revive_topic, &topic_field, &magic, &store_host)) return false;
    if (!read_text(from->group, &lease->group) || !read_text(from->topic, &lease->topic)) {
        if (PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) PyErr_Clear(); /* unpaired surrogates */
        return false;
    }
    if (!read_text(broker, &lease->broker) || !read_text(revive_topic, &lease->revive_topic)) return false;
    if (!span_of_bytes(topic_field, &record->topic_field) || !span_of_bytes(store_host, &shared->store_host)) return false;
    lease->queue_id = queue_id;
    lease->start = start;
    lease->pop_ms = pop_ms;
    lease->invisible_ms = invisible_ms;
    lease->revive_queue = revive_queue;
    lease->due_ms = due_ms;
    lease->out_ms = out_ms;
    record->magic = magic;
    record->born_ms = born_ms;
    record->queue_offset = queue_offset;
    record->log_offset = log_offset;
    shared->born_host = shared->store_host;
    shared->store_ms = store_ms;
    shared->max_body_bytes = INT32_MAX;
    *limit = end;
    return shared->store_host.size == 8 && is_plain(lease->group) && is_plain(lease->topic) && is_plain(lease->broker) &&
           is_plain(lease->revive_topic) && start >= 0 && log_offset >= 0 && pop_ms >= 0 && invisible_ms >= 0 && pop_ms <= INT64_MAX - invisible_ms;
}

static void close_lease(Lease *lease) {
    out_free(&lease->offsets);
    out_free(&lease->long_offsets);
}

/* Encodes the record and its queue entry; false if Python must, or with an error set. */
static bool put_lease(const Lease *lease, Record *record, const RecordPlan *shared, int64_t limit, Out *bytes, Out *entry) {
    Out body = {0}, properties = {0};
    put_lease_body(lease, &body);
    put_lease_properties(lease, &properties);
    bool fits = !lease->irregular && !body.failed && !properties.failed && !lease->offsets.failed && !lease->long_offsets.failed;
    record->body = (Span){body.data, body.used};
    record->properties = (Span){properties.data, properties.used};
    fits = fits && measure_record(record, shared) && record->size <= limit - record->log_offset;
    if (fits) put_record(record, shared, bytes, entry);
    out_free(&body);
    out_free(&properties);
    return fits && !bytes->failed && !entry->failed;
}

/* None if Python must do it, unless an error is set. */
static PyObject *declined(void) { return PyErr_Occurred() ? NULL : Py_NewRef(Py_None); }

/* lay_out_lease(is_ack, group, topic, offsets, numbers, position, plan) -> (record, queue entry), or None if it is irregular */
PyObject *lay_out_lease(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    enum { IS_ACK, GROUP_TEXT, TOPIC_TEXT, OFFSETS, NUMBERS, POSITION, PLAN, ARGUMENTS };
    (void)module;
    if (count != ARGUMENTS) return PyErr_Format(PyExc_TypeError, "lay_out_lease takes %d arguments, got %zd", ARGUMENTS, count);
    const LeaseArguments from = {arguments[GROUP_TEXT], arguments[TOPIC_TEXT], arguments[NUMBERS], arguments[POSITION], arguments[PLAN]};
    Lease lease = {.is_ack = PyObject_IsTrue(arguments[IS_ACK]) == 1};
    Record record = {0};
    RecordPlan shared = {0};
    Out bytes = {0}, entry = {0};
    int64_t limit;
    PyObject *found = NULL;
    if (read_lease(&from, &lease, &record, &shared, &limit) && read_offsets(arguments[OFFSETS], &lease) &&
        put_lease(&lease, &record, &shared, limit, &bytes, &entry))
        found = Py_BuildValue("(NN)", out_bytes(&bytes), out_bytes(&entry));
    else
        found = declined();
    out_free(&bytes);
    out_free(&entry);
    close_lease(&lease);
    return found;
}

/* The texts of the answer to a pop, each named after the value that follows it: `protocol.hot_headers.POP_PARTS`. */
enum { BEFORE_TIME, BEFORE_INVISIBLE, BEFORE_REVIVE_QUEUE, BEFORE_REST, BEFORE_START, BEFORE_OFFSETS, BEFORE_OPAQUE, BEFORE_END, ANSWER_PARTS };

typedef struct {
    Span parts[ANSWER_PARTS];
    int64_t opaque, flag, rest;
} PopAnswer;

static void put_queue(Out *out, const PopAnswer *answer, const Lease *lease) {
    out_number(out, answer->flag);
    out_text(out, " ");
    out_number(out, lease->queue_id);
    out_text(out, " ");
}

static void put_pop_answer(const PopAnswer *answer, const Lease *lease, Span records, Out *out) {
    if (!out_need(out, 8)) return;
    out->used += 8;
    out_span(out, answer->parts[BEFORE_TIME]);
    out_number(out, lease->pop_ms);
    out_span(out, answer->parts[BEFORE_INVISIBLE]);
    out_number(out, lease->invisible_ms);
    out_span(out, answer->parts[BEFORE_REVIVE_QUEUE]);
    out_number(out, lease->revive_queue);
    out_span(out, answer->parts[BEFORE_REST]);
    out_number(out, answer->rest);
    out_span(out, answer->parts[BEFORE_START]);
    put_queue(out, answer, lease);
    out_number(out, lease->start);
    out_span(out, answer->parts[BEFORE_OFFSETS]);
    put_queue(out, answer, lease);
    out_span(out, (Span){lease->long_offsets.data, lease->long_offsets.used});
    out_span(out, answer->parts[BEFORE_OPAQUE]);
    out_number(out, answer->opaque);
    out_span(out, answer->parts[BEFORE_END]);
    const uint32_t header_bytes = (uint32_t)(out->used - 8);
    out_span(out, records);
    if (out->failed) return;
    put32(out->data, (uint32_t)(out->used - 4));
    put32(out->data + 4, header_bytes);
}

/* Reads (opaque, flag, rest of other queues, end of the queue), and the parts. */
static bool read_answer(PyObject *numbers, PyObject *parts, PopAnswer *answer, int64_t *end) {
    long long opaque, flag, rest, queue_end;
    if (!PyTuple_Check(numbers) || !PyTuple_Check(parts) || PyTuple_Size(parts) != ANSWER_PARTS) {
        PyErr_Format(PyExc_TypeError, "an answer is a tuple of numbers, and one of %d parts", ANSWER_PARTS);
        return false;
    }
    if (!PyArg_ParseTuple(numbers, "LLLL", &opaque, &flag, &rest, &queue_end)) return false;
    for (int part = 0; part < ANSWER_PARTS; part++)
        if (!span_of_bytes(PyTuple_GetItem(parts, part), &answer->parts[part])) return false;
    answer->opaque = opaque;
    answer->flag = flag;
    answer->rest = rest;
    *end = queue_end;
    return true;
}

/* Encodes the lease of the picked records and its answer; NULL without an error if Python must. */
static PyObject *leased(Lease *lease, Record *record, const RecordPlan *shared, int64_t limit, PopAnswer *answer, Span records) {
    Out bytes = {0}, entry = {0}, out = {0};
    PyObject *found = NULL;
    if (put_lease(lease, record, shared, limit, &bytes, &entry)) {
        put_pop_answer(answer, lease, records, &out);
        if (!out.failed)
            found = Py_BuildValue("(LnNNNL)", (long long)lease->count, records.size, out_bytes(&bytes), out_bytes(&entry), out_bytes(&out), (long long)answer->rest);
    }
    out_free(&bytes);
    out_free(&entry);
    out_free(&out);
    return found;
}

/* lease_messages(group, topic, entries, bounds, map_at, numbers, position, plan, answer, parts)
 *     -> (count, size of the records, record, queue entry, answer, rest), or None if it is irregular
 *
 * Leases the messages of the entries from the start on, up to the bounds. answer: opaque, flag, rest of other queues, end of
 * the queue.
 */
PyObject *lease_messages(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    enum { GROUP_TEXT, TOPIC_TEXT, ENTRIES, BOUNDS, MAP_AT, NUMBERS, POSITION, PLAN, ANSWER, PARTS, ARGUMENTS };
    (void)module;
    if (count != ARGUMENTS) return PyErr_Format(PyExc_TypeError, "lease_messages takes %d arguments, got %zd", ARGUMENTS, count);
    const LeaseArguments from = {arguments[GROUP_TEXT], arguments[TOPIC_TEXT], arguments[NUMBERS], arguments[POSITION], arguments[PLAN]};
    Span entries, records;
    Pick pick = {.looked_at = -1};
    Lease lease = {0};
    Record record = {0};
    RecordPlan shared = {0};
    PopAnswer answer;
    int64_t limit, end;
    PyObject *found = NULL, *bytes = NULL;
    if (!span_of_bytes(arguments[ENTRIES], &entries) || !read_bounds(arguments[BOUNDS], &pick.bounds)) return NULL;
    if (!read_answer(arguments[ANSWER], arguments[PARTS], &answer, &end)) return NULL;
    pick.bounds.hot_count = least(pick.bounds.hot_count, pick.bounds.max_count);
    pick.bounds.cold_count = least(pick.bounds.cold_count, pick.bounds.max_count);
    if (read_lease(&from, &lease, &record, &shared, &limit) && pick_from(&pick, entries) && pick.count && !pick.removed)
        bytes = picked_bytes(&pick, arguments[MAP_AT]);
    if (bytes && span_of_bytes(bytes, &records) && lease.start <= INT64_MAX - pick.count) {
        for (Py_ssize_t at = 0; at < pick.count; at++) add_offset(&lease, lease.start + at);
        const int64_t next = lease.start + pick.count;
        answer.rest += end > next ? end - next : 0;
        found = leased(&lease, &record, &shared, limit, &answer, records);
    }
    Py_XDECREF(bytes);
    out_free(&pick.ranges);
    close_lease(&lease);
    return found ? found : declined();
}

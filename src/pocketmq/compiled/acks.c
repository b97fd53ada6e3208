/* Reads the acks of a turn.
 *
 *   frames from `at` on ── regular acks? ──► offsets by lease │ answers     the first irregular one ends the run; Python serves it
 *
 * Python checks the leases, stores the acks, and sends the answers when the turn is written.
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

/* The words of a lease: start, pop time, invisible time, revive queue, flag, broker, queue id. */
enum { BROKER = 5, WORDS = 7 };

typedef struct {
    int64_t numbers[WORDS];
    Span broker;
} Handle;

static bool read_handle(Span lease, Handle *handle) {
    const byte *at = lease.at, *end = lease.at + lease.size;
    for (int word = 0; word < WORDS; word++) {
        const byte *start = at;
        while (at < end && *at != ' ') at++;
        const Span text = {start, at - start};
        if (word == BROKER)
            handle->broker = text;
        else if (!read_number(text, INT64_MIN, INT64_MAX, &handle->numbers[word]))
            return false;
        if (word < WORDS - 1 && at++ == end) return false;
    }
    return at == end;
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
    Handle handle;
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

/* The lease of an ack, which usually is the one of the ack before; NULL if there are too many, if its handle is unusual, or
   with an error set. */
static Acked *lease_of(AckRun *run, const AckHead *head, Py_ssize_t number) {
    for (int at = run->count; at-- > 0;)
        if (is_same_lease(&run->leases[at].head, head)) return &run->leases[at];
    if (run->count == MAX_LEASES) return NULL;
    Acked *added = &run->leases[run->count];
    *added = (Acked){.head = *head, .first = number};
    if (!read_handle(head->lease, &added->handle) || !(added->offsets = PyList_New(0))) return NULL;
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

/* [(group, topic, queue id, handle, number of the first frame, offsets)]; a handle is (start, pop time, invisible time,
   revive queue, flag, broker) */
static PyObject *acked_leases(const AckRun *run) {
    PyObject *leases = PyList_New(0);
    for (int at = 0; leases && at < run->count; at++) {
        const Acked *one = &run->leases[at];
        const AckHead *head = &one->head;
        const int64_t *numbers = one->handle.numbers;
        PyObject *lease = Py_BuildValue("(NNL(LLLLLN)nO)", text_of(head->group), text_of(head->topic), (long long)head->queue_id, (long long)numbers[0],
                                        (long long)numbers[1], (long long)numbers[2], (long long)numbers[3], (long long)numbers[4],
                                        text_of(one->handle.broker), one->first, one->offsets);
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

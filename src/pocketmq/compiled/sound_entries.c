/* Compares entries from the files of a queue with the log: the loop of `store.queues.sound_entries`.
 *
 *   entries:   | a | b | c |   | d |   | e | f |        adjacent records in the log are a chain: a b c, d, e f
 *   compared:    ^       ^       ^       ^   ^
 *
 * A record contains its size, its log offset and its queue offset. If the first and the last record of a chain match
 * their entries,
 * all messages between them are in that part of the log, and a reader that gets this part gets all of them.
 *
 * An entry that a tag filter leaves out is not compared with its record, because the filter exists to avoid that read.
 * Its tags code must
 * be known: a record of the topic had it.
 */

#include "turn.h"

enum { NOTHING_HERE = 0x7FFFFFFF, LONGER_HOST = 12 };
enum { FAR_AHEAD = 12, NEAR_AHEAD = 5 };
enum { BORN_HOST_V6 = 1 << 4, STORE_HOST_V6 = 1 << 5 };

/* The queue, and the last used file of the log. */
typedef struct {
    PyObject *map_at;
    Py_buffer bytes;
    int64_t first; /* -1 before the first file */
    int64_t log_start, log_end, queue_id;
    Span topic;
} Queue;

typedef struct {
    int64_t offset, size, code;
} Entry;

/* Entries of adjacent records: the first and the last of them. */
typedef struct {
    Py_ssize_t first, last;
    Entry entry; /* the last */
} Chain;

static Entry entry_at(const byte *at) {
    const QueueEntry *entry = (const QueueEntry *)at;
    return (Entry){(int64_t)get64(entry->log_offset), (int32_t)get32(entry->size), (int64_t)get64(entry->tags_code)};
}

static void release_map(Queue *queue) {
    if (queue->first >= 0) PyBuffer_Release(&queue->bytes);
    queue->first = -1;
}

static bool lies_in_map(const Queue *queue, const Entry *entry) {
    return queue->first >= 0 && entry->offset >= queue->first && entry->size <= queue->bytes.len - (entry->offset - queue->first);
}

/* The bytes of the record, if they are in one file of the log; NULL if not, or with an error set. */
static const byte *find_record(Queue *queue, const Entry *entry) {
    if (!lies_in_map(queue, entry)) {
        PyObject *found = PyObject_CallFunction(queue->map_at, "L", (long long)entry->offset), *bytes;
        long long first;
        if (!found) return NULL;
        release_map(queue);
        if (!PyTuple_Check(found)) {
            PyErr_SetString(PyExc_TypeError, "a map comes as a tuple with its offset");
        } else if (PyArg_ParseTuple(found, "OL", &bytes, &first) && bytes != Py_None && first >= 0) {
            if (PyObject_GetBuffer(bytes, &queue->bytes, PyBUF_SIMPLE) == 0) queue->first = first;
        }
        Py_DECREF(found);
        if (PyErr_Occurred() || !lies_in_map(queue, entry)) return NULL;
    }
    return (const byte *)queue->bytes.buf + (entry->offset - queue->first);
}

static bool has_topic(const byte *record, int64_t size, Span topic) {
    const RecordHead *fields = (const RecordHead *)record; /* after its first host; a record with IPv6 does not match */
    const uint32_t flags = get32(fields->sys_flag), magic = get32(fields->magic);
    const int64_t head = RECORD_HEAD + (flags & BORN_HOST_V6 ? LONGER_HOST : 0) + (flags & STORE_HOST_V6 ? LONGER_HOST : 0);
    const int64_t width = magic == MAGIC_V2 ? 2 : 1;
    if (magic != MAGIC_V1 && magic != MAGIC_V2) return false;
    if (head > size || get32(record + head - 4) > size - head) return false;
    const int64_t at = head + get32(record + head - 4);
    if (size - at < width + topic.size) return false;
    const uint32_t length = width == 2 ? get16(record + at) : record[at];
    return length == (uint64_t)topic.size && !memcmp(record + at + width, topic.at, (size_t)topic.size);
}

/* Whether the entry points to the message at this offset of the queue; false also with an error set. */
static bool is_message(Queue *queue, const Entry *entry, int64_t queue_offset) {
    const byte *record = entry->size < SMALLEST_RECORD ? NULL : find_record(queue, entry);
    const RecordHead *head = (const RecordHead *)record;
    return record && get32(head->size) == (uint64_t)entry->size && (int64_t)get64(head->queue_offset) == queue_offset &&
           (int64_t)get64(head->log_offset) == entry->offset && get32(head->queue_id) == (uint32_t)queue->queue_id &&
           has_topic(record, entry->size, queue->topic);
}

/* Ends a chain: all of it is valid if its last record matches. */
static bool close_chain(Queue *queue, Chain *chain, int64_t queue_offset, Py_ssize_t *sound) {
    if (chain->last > chain->first) {
        if (!is_message(queue, &chain->entry, queue_offset + chain->last)) return false;
        *sound = chain->last + 1;
    }
    chain->first = chain->last = -1;
    return true;
}

/* Prefetches records that are compared soon: the head of one, and the topic of an earlier one, whose head is in the
   cache now. */
static void fetch_ahead(const Queue *queue, Span entries, Py_ssize_t number) {
    const Py_ssize_t count = entries.size / ENTRY_BYTES;
    if (queue->first < 0) return;
    if (number + FAR_AHEAD < count) {
        const Entry entry = entry_at(entries.at + (number + FAR_AHEAD) * ENTRY_BYTES);
        if (entry.size >= SMALLEST_RECORD && lies_in_map(queue, &entry)) PREFETCH((const byte *)queue->bytes.buf + (entry.offset - queue->first));
    }
    if (number + NEAR_AHEAD < count) {
        const Entry entry = entry_at(entries.at + (number + NEAR_AHEAD) * ENTRY_BYTES);
        if (entry.size < SMALLEST_RECORD || !lies_in_map(queue, &entry)) return;
        const byte *record = (const byte *)queue->bytes.buf + (entry.offset - queue->first);
        const int64_t body_bytes = get32(((const RecordHead *)record)->body_size);
        if (body_bytes < entry.size - RECORD_HEAD) PREFETCH(record + RECORD_HEAD + body_bytes);
    }
}

/* How many entries from the first on are valid; Python checks the next one. -1 with an error set. */
static Py_ssize_t count_entries(Queue *queue, Span entries, int64_t queue_offset, Codes *wanted, Codes *known) {
    Chain chain = {-1, -1, {0, 0, 0}};
    Py_ssize_t sound = 0;
    int64_t end = 0;
    const Py_ssize_t count = entries.size / ENTRY_BYTES;
    for (Py_ssize_t number = 0; number < count; number++) {
        const Entry entry = entry_at(entries.at + number * ENTRY_BYTES);
        if (entry.offset != end) fetch_ahead(queue, entries, number);
        if (entry.size <= 0 || entry.size >= NOTHING_HERE || entry.offset < queue->log_start || entry.offset > queue->log_end - entry.size) break;
        if (entry.offset < end) break; /* records are in the order of their offsets */
        const int is_wanted = holds_code(wanted, entry.code);
        if (is_wanted < 0) return -1;
        if (is_wanted && chain.first >= 0 && entry.offset == end) {
            chain.last = number;
        } else {
            if (!close_chain(queue, &chain, queue_offset, &sound)) break;
            if (is_wanted ? !is_message(queue, &entry, queue_offset + number) : holds_code(known, entry.code) < 1) break;
            sound = number + 1;
            if (is_wanted) chain.first = chain.last = number;
        }
        chain.entry = entry;
        end = entry.offset + entry.size;
    }
    if (!PyErr_Occurred()) close_chain(queue, &chain, queue_offset, &sound);
    return PyErr_Occurred() ? -1 : sound;
}

/* count_sound(entries, queue offset of the first, (queue id, topic), (log_start, log_end), tag_codes, known codes,
   map_at) -> number of valid entries */
PyObject *count_sound(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (count != 7) return PyErr_Format(PyExc_TypeError, "count_sound takes 7 arguments, got %zd", count);
    Span entries;
    long long queue_id, start, end;
    PyObject *topic;
    const int64_t queue_offset = PyLong_AsLongLong(arguments[1]);
    if (PyErr_Occurred() || !span_of_bytes(arguments[0], &entries)) return NULL;
    if (!PyTuple_Check(arguments[2]) || !PyTuple_Check(arguments[3])) return PyErr_Format(PyExc_TypeError, "the queue and the ends of the log must be tuples");
    if (!PyArg_ParseTuple(arguments[2], "LO", &queue_id, &topic) || !PyArg_ParseTuple(arguments[3], "LL", &start, &end)) return NULL;
    Queue queue = {.map_at = arguments[6], .first = -1, .log_start = start, .log_end = end, .queue_id = queue_id};
    if (!span_of_bytes(topic, &queue.topic)) return NULL;
    if (queue_offset < 0 || start < 0 || end < start) return PyErr_Format(PyExc_ValueError, "offsets must not be negative");
    Codes wanted = {.set = arguments[4] == Py_None ? NULL : arguments[4]}, known = {.set = arguments[5]};
    const Py_ssize_t sound = count_entries(&queue, entries, queue_offset, &wanted, &known);
    release_map(&queue);
    return sound < 0 ? NULL : PyLong_FromSsize_t(sound);
}

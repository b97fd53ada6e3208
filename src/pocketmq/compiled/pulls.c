/* Serves all regular pulls of a turn in one call: reads heads, selects messages, builds answers.
 *
 *   frames from `at` on ── regular, already checked? ──► ranges of the log ──► | head | messages | head | messages | …
 *                       └─ no, or no message found ──► the run ends; Python serves this pull
 *
 * A `CheckedPull` has passed its checks: the client, the queue, the subscription. Python keeps the table, clears it
 * when anything changes that a check depends on, and counts and commits after the run. So this file only finds the
 * messages in the log. They are copied once, from the mapped log into the answer; large ranges are copied only by the
 * kernel.
 *
 * Several pulls of one read usually come from one reader, and their headers differ only in offset and opaque. Such a
 * header is not decoded again: it uses the CheckedPull of the one before, and Python counts them together.
 *
 * A CheckedPull keeps some entries of its queue ahead, because the next pull needs them. Its last field reads them:
 * reader(offset, needed, number including those ahead) returns entries that were checked against the log. They stay
 * valid while they are kept; the ends of queue and log are checked each time.
 */

#include "turn.h"

/* The fields of `compiled.CheckedPull`. */
enum { CHECKED_CLIENT, CHECKED_QUEUE, CHECKED_RESET_KEY, CHECKED_TAG_CODES, CHECKED_NEAR, CHECKED_FAR, CHECKED_KEPT, CHECKED_READER, CHECKED_PARTS };
/* Entries that are kept ahead: the offset of the first, and the entries. */
enum { KEPT_OFFSET, KEPT_ENTRIES, KEPT_PARTS };
enum { MAX_RUN = 16, HEAD_PARTS = 5, LONGEST_KEY = 1024, READ_AHEAD = 257, READ_ON = 1025 };
enum { ONLY_BODIES = 1 << 20 }; /* of `PullFlag` */
enum { LARGE_ANSWER = 128 * 1024, LARGE_RANGE = 32 * 1024 };

/* A file of the log. */
typedef struct {
    Py_buffer bytes;
    int64_t first;
} Map;

/* A pull that is answered. Its head and its ranges are among those of the run. */
typedef struct {
    PyObject *checked, *packed; /* its answer, with the head, if only bodies are wanted; NULL if it has records */
    const Map *map;
    int64_t next_offset, commit_offset, body_bytes;
    Py_ssize_t messages, head_bytes, ranges;
} Pulled;

typedef struct {
    PyObject *checked_pulls, *resets, *map_at;
    ReadBounds bounds;
    Out key, heads, ranges, picked;
    Map maps[MAX_RUN];
    Pulled pulled[MAX_RUN];
    int map_count, count;
    int64_t size; /* of all answers */
    PullHead last; /* the last decoded head, whose header is kept for it */
    PyObject *last_header, *last_checked;
    int64_t low, high; /* the ends of the current queue */
} Run;

static void put_optional(Out *out, Span text) {
    out_put(out, (const byte *)(text.at ? "\1\2" : "\1"), text.at ? 2 : 1);
    out_span(out, text);
}

/* The CheckedPull of such pulls; NULL if there is none, or with an error set. See
   `broker.handlers.checked_pulls.key_of`. */
static PyObject *find_checked(Run *run, const PullHead *head) {
    Out *key = &run->key;
    key->used = 0;
    out_number(key, head->code);
    put_optional(key, head->group);
    put_optional(key, head->topic);
    out_put(key, (const byte *)"\1", 1);
    out_number(key, head->queue_id);
    out_put(key, (const byte *)"\1", 1);
    out_number(key, head->sys_flag);
    out_put(key, (const byte *)"\1", 1);
    out_number(key, head->sub_version);
    put_optional(key, head->subscription);
    put_optional(key, head->expression_type);
    if (key->failed || key->used > LONGEST_KEY) return NULL;
    PyObject *name = out_bytes(key);
    PyObject *checked = name ? PyDict_GetItemWithError(run->checked_pulls, name) : NULL;
    Py_XDECREF(name);
    if (checked && (!PyTuple_Check(checked) || PyTuple_Size(checked) != CHECKED_PARTS)) {
        PyErr_Format(PyExc_TypeError, "a checked pull must be a tuple of %d", CHECKED_PARTS);
        return NULL;
    }
    return checked;
}

static bool read_offset(PyObject *queue, const char *name, int64_t *offset) {
    PyObject *number = PyObject_GetAttrString(queue, name);
    if (!number) return false;
    *offset = PyLong_AsLongLong(number);
    Py_DECREF(number);
    return !PyErr_Occurred();
}

/* Entries from `offset` on that are kept ahead: [offset of the first, entries]. If there are too few, `is_next`
   shows whether the reader continues after them. */
static bool kept_entries(PyObject *kept, int64_t offset, int64_t count, Span *entries, bool *is_next) {
    *is_next = false;
    if (!PyList_Check(kept) || PyList_Size(kept) != KEPT_PARTS) {
        PyErr_SetString(PyExc_TypeError, "entries ahead must be a list of two");
        return false;
    }
    const int64_t first = PyLong_AsLongLong(PyList_GetItem(kept, KEPT_OFFSET));
    if (PyErr_Occurred() || !span_of_bytes(PyList_GetItem(kept, KEPT_ENTRIES), entries)) return false;
    const int64_t kept_count = entries->size / ENTRY_BYTES;
    if (offset < first || offset - first > kept_count) return false;
    *is_next = offset > first;
    if (count > kept_count - (offset - first)) return false;
    *entries = (Span){entries->at + (offset - first) * ENTRY_BYTES, (Py_ssize_t)(count * ENTRY_BYTES)};
    return true;
}

/* `count` entries from `offset` on; false if there are fewer, or with an error set. */
static bool find_entries(PyObject *checked, int64_t offset, int64_t count, Span *entries) {
    PyObject *kept = PyTuple_GetItem(checked, CHECKED_KEPT);
    bool is_next;
    if (kept_entries(kept, offset, count, entries, &is_next)) return true;
    if (PyErr_Occurred()) return false;
    const int64_t ahead = is_next ? READ_ON : READ_AHEAD;
    PyObject *read = PyObject_CallFunction(PyTuple_GetItem(checked, CHECKED_READER), "LLL", (long long)offset, (long long)count, (long long)(count > ahead ? count : ahead));
    PyObject *first = PyLong_FromLongLong(offset);
    if (!read || !first || !PyBytes_Check(read)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "entries must be bytes");
        Py_XDECREF(read);
        Py_XDECREF(first);
        return false;
    }
    return PyList_SetItem(kept, KEPT_OFFSET, first) == 0 && PyList_SetItem(kept, KEPT_ENTRIES, read) == 0 &&
           kept_entries(kept, offset, count, entries, &is_next);
}

/* The file of the log with `offset`; NULL if there is none, or with an error set. */
static const Map *find_map(Run *run, int64_t offset) {
    if (run->map_count) { /* usually the same as before */
        const Map *last = &run->maps[run->map_count - 1];
        if (offset >= last->first && offset - last->first < last->bytes.len) return last;
    }
    PyObject *found = PyObject_CallFunction(run->map_at, "L", (long long)offset), *bytes;
    Map *map = &run->maps[run->map_count];
    long long first;
    bool opened = false;
    if (!found) return NULL;
    if (!PyTuple_Check(found)) {
        PyErr_SetString(PyExc_TypeError, "a map comes as a tuple with its offset");
    } else if (PyArg_ParseTuple(found, "OL", &bytes, &first) && bytes != Py_None && first >= 0) {
        opened = PyObject_GetBuffer(bytes, &map->bytes, PyBUF_SIMPLE) == 0;
        map->first = first;
    }
    Py_DECREF(found);
    if (opened) run->map_count++;
    return opened ? map : NULL;
}

static bool lies_in(const Map *map, const LogRange *ranges, Py_ssize_t count) {
    for (Py_ssize_t number = 0; number < count; number++) {
        const int64_t at = ranges[number].offset - map->first;
        if (at < 0 || at > map->bytes.len - ranges[number].size) return false;
    }
    return true;
}

/* Writes the head of an answer; its parts are the text around next, smallest and largest offset and opaque. */
static bool put_head(Run *run, PyObject *parts, int64_t opaque, const int64_t offsets[3], int64_t body_bytes) {
    Out *out = &run->heads;
    const Py_ssize_t start = out->used;
    if (!PyTuple_Check(parts) || PyTuple_Size(parts) != HEAD_PARTS) {
        PyErr_Format(PyExc_TypeError, "the head of an answer must have %d parts", HEAD_PARTS);
        return false;
    }
    if (!out_need(out, 8)) return false;
    out->used += 8;
    for (int part = 0; part < HEAD_PARTS; part++) {
        Span text;
        if (!span_of_bytes(PyTuple_GetItem(parts, part), &text)) return false;
        out_span(out, text);
        if (part < HEAD_PARTS - 1) out_number(out, part < 3 ? offsets[part] : opaque);
    }
    if (out->failed) return false;
    const uint32_t header_bytes = (uint32_t)(out->used - start - 8);
    put32(out->data + start, 4 + header_bytes + (uint32_t)body_bytes);
    put32(out->data + start + 4, header_bytes); /* high byte 0: JSON */
    return true;
}

/* Selects the messages as `store.reading` does; false if Python must serve this pull, or with an error set. */
static bool pick_messages(const Run *run, Pick *pick, PyObject *checked, const PullHead *head) {
    int64_t most = least(head->most, run->bounds.max_count);
    if (most < 1) most = 1;
    const int64_t at_most = most > run->bounds.entries ? most : run->bounds.entries;
    pick->bounds.hot_count = least(most, run->bounds.hot_count);
    pick->bounds.cold_count = least(most, run->bounds.cold_count);
    const int64_t wanted = least(pick->wanted.set ? at_most : pick->bounds.hot_count + 1, at_most);
    Span entries;
    if (!find_entries(checked, head->queue_offset, least(wanted, run->high - head->queue_offset), &entries)) return false;
    if (!pick_from(pick, entries) || !pick->count || pick->removed) return false; /* the queue may still begin with
                                                                                     deleted messages */
    return pick->stopped || pick->looked != wanted || wanted == at_most;
}

static Span span_of(const Map *map, const LogRange *range) {
    return (Span){(const byte *)map->bytes.buf + (range->offset - map->first), (Py_ssize_t)range->size};
}

/* Adds a pack of bodies after its head; NULL if whole records are better, or with an error set. */
static PyObject *packed_answer(Span head, const Map *map, const Pick *picked) {
    if (!can_be_packed(picked->count, picked->total)) return NULL;
    PyObject *bytes = PyByteArray_FromStringAndSize(NULL, head.size + (Py_ssize_t)pack_capacity(picked->total));
    if (!bytes) return NULL;
    byte *to = (byte *)PyByteArray_AsString(bytes);
    const LogRange *range = (const LogRange *)picked->ranges.data, *end = range + picked->ranges.used / (Py_ssize_t)sizeof *range;
    BodyPack pack;
    bool is_usual = true;
    begin_pack(&pack, to + head.size, picked->count, picked->total);
    for (; is_usual && range < end; range++) is_usual = put_bodies(&pack, span_of(map, range));
    const int64_t size = is_usual ? end_pack(&pack) : 0;
    memcpy(to, head.at, (size_t)head.size);
    put32(to, (uint32_t)(head.size - 4 + size));
    return shrunk(bytes, size ? head.size + (Py_ssize_t)size : 0);
}

/* Adds an answer with these messages; false if they are not in one file, or with an error set. */
static bool add_answer(Run *run, PyObject *checked, const PullHead *head, const Pick *picked) {
    const LogRange *ranges = (const LogRange *)picked->ranges.data;
    const Py_ssize_t count = picked->ranges.used / (Py_ssize_t)sizeof(LogRange), heads_before = run->heads.used;
    const int64_t offsets[3] = {head->queue_offset + picked->looked, run->low, run->high};
    const Map *map = find_map(run, ranges[0].offset);
    if (!map || !lies_in(map, ranges, count)) return false;
    out_put(&run->ranges, picked->ranges.data, picked->ranges.used);
    if (run->ranges.failed) return false;
    PyObject *parts = PyTuple_GetItem(checked, picked->looked_at < run->bounds.cold_below ? CHECKED_FAR : CHECKED_NEAR);
    if (!put_head(run, parts, head->opaque, offsets, picked->total)) return false;
    const Span put = {run->heads.data + heads_before, run->heads.used - heads_before};
    const bool is_dense = picked->count == picked->looked; /* bodies have no offsets: they are used only if none is
                                                              missing */
    PyObject *packed = head->sys_flag & ONLY_BODIES && is_dense ? packed_answer(put, map, picked) : NULL;
    if (PyErr_Occurred()) return false;
    run->pulled[run->count++] =
        (Pulled){Py_NewRef(checked), packed, map, offsets[0], head->commit_offset, picked->total, picked->count, put.size, count};
    run->size += packed ? PyByteArray_Size(packed) : put.size + picked->total;
    return true;
}

/* Answers a checked pull; false if Python must serve it, or with an error set. */
static bool answer(Run *run, PyObject *checked, const PullHead *head) {
    PyObject *queue = PyTuple_GetItem(checked, CHECKED_QUEUE), *tag_codes = PyTuple_GetItem(checked, CHECKED_TAG_CODES);
    if (PyDict_Size(run->resets)) { /* after a reset, the next pull of the group is redirected */
        const int is_reset = PyDict_Contains(run->resets, PyTuple_GetItem(checked, CHECKED_RESET_KEY));
        if (is_reset) return false;
    }
    if (checked != run->last_checked && (!read_offset(queue, "min_offset", &run->low) || !read_offset(queue, "max_offset", &run->high))) return false;
    if (head->queue_offset < run->low || head->queue_offset >= run->high) return false;
    Pick picked = {.bounds = run->bounds, .looked_at = -1, .wanted = {.set = tag_codes == Py_None ? NULL : tag_codes},
                   .ranges = run->picked};
    picked.ranges.used = 0;
    const bool answered = pick_messages(run, &picked, checked, head) && add_answer(run, checked, head, &picked);
    run->picked = picked.ranges;
    return answered;
}

/* Reads a head and finds its CheckedPull, a new reference; NULL if it is irregular, or with an error set. */
static PyObject *read_pull(Run *run, Span header, PullHead *head) {
    if (run->last_checked && read_next_pull_head(header, &run->last, head)) return Py_NewRef(run->last_checked);
    PyObject *checked = read_pull_head(header, head) ? find_checked(run, head) : NULL;
    Py_XINCREF(checked); /* reading entries calls Python, which could clear the table */
    return checked;
}

/* Adds one frame to the run; false if it is irregular, or with an error set. */
static bool take_pull(Run *run, PyObject *frame) {
    Span header, body;
    PullHead head;
    if (!read_frame(frame, &header, &body)) return false;
    PyObject *checked = read_pull(run, header, &head);
    if (!checked) return false;
    const bool answered = answer(run, checked, &head);
    if (answered) run->last_checked = checked; /* the row of the pull keeps a reference to it */
    if (answered && head.header.at == header.at) {
        Py_XDECREF(run->last_header);
        run->last_header = Py_NewRef(PyTuple_GetItem(frame, FRAME_HEADER));
        run->last = head;
    }
    Py_DECREF(checked);
    return answered;
}

/* Whether copying the messages costs more than a view of each range: the kernel copies them from the log, too. */
static bool is_large(const Pulled *pulled) {
    return pulled->body_bytes >= LARGE_ANSWER && pulled->body_bytes >= pulled->ranges * LARGE_RANGE;
}

/* Appends a new reference, or fails if it is NULL. */
static bool append(PyObject *list, PyObject *piece) {
    const bool appended = piece && PyList_Append(list, piece) == 0;
    Py_XDECREF(piece);
    return appended;
}

/* Appends a packed answer, or a head and views of the messages, which reference the map. */
static bool append_one(PyObject *pieces, const Pulled *pulled, const byte *head, const LogRange *range) {
    if (pulled->packed) return append(pieces, PyMemoryView_FromObject(pulled->packed));
    bool appended = append(pieces, PyBytes_FromStringAndSize((const char *)head, pulled->head_bytes));
    for (Py_ssize_t left = pulled->ranges; appended && left; left--, range++) {
        const Py_ssize_t at = (Py_ssize_t)(range->offset - pulled->map->first);
        appended = append(pieces, PySequence_GetSlice(pulled->map->bytes.obj, at, at + (Py_ssize_t)range->size));
    }
    return appended;
}

/* Joins the answers from `first` to `end`. */
static PyObject *joined(const Pulled *first, const Pulled *end, const byte *head, const LogRange *range) {
    Py_ssize_t size = 0;
    for (const Pulled *pulled = first; pulled < end; pulled++) size += pulled->head_bytes + (Py_ssize_t)pulled->body_bytes;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, size);
    if (!bytes) return NULL;
    byte *to = (byte *)PyBytes_AsString(bytes);
    for (const Pulled *pulled = first; pulled < end; pulled++) {
        memcpy(to, head, (size_t)pulled->head_bytes);
        to += pulled->head_bytes;
        head += pulled->head_bytes;
        for (Py_ssize_t left = pulled->ranges; left; left--, range++) {
            memcpy(to, (const byte *)pulled->map->bytes.buf + (range->offset - pulled->map->first), (size_t)range->size);
            to += range->size;
        }
    }
    return bytes;
}

/* All answers in order: those with small ranges joined, the others on their own. */
static PyObject *pieces_of(const Run *run) {
    PyObject *pieces = PyList_New(0);
    const byte *head = run->heads.data;
    const LogRange *range = (const LogRange *)run->ranges.data;
    const Pulled *pulled = run->pulled, *end = pulled + run->count;
    while (pieces && pulled < end) {
        const Pulled *first = pulled;
        while (pulled < end && !pulled->packed && !is_large(pulled)) pulled++;
        const bool is_alone = pulled == first;
        if (is_alone) pulled++;
        if (!(is_alone ? append_one(pieces, first, head, range) : append(pieces, joined(first, pulled, head, range)))) Py_CLEAR(pieces);
        for (; first < pulled; first++) {
            head += first->head_bytes;
            range += first->ranges;
        }
    }
    return pieces;
}

/* Whether two pulls are counted as one row: the second continues the first. */
static bool is_counted_with(const Pulled *before, const Pulled *pulled) {
    return before->checked == pulled->checked && before->commit_offset == pulled->commit_offset;
}

/* One row for consecutive pulls; `number` is the first of them, and then the next one after them. */
static PyObject *counted(const Run *run, int *number) {
    const Pulled *first = &run->pulled[*number], *last = first;
    Py_ssize_t messages = first->messages;
    int64_t body_bytes = first->body_bytes;
    while (++*number < run->count && is_counted_with(first, &run->pulled[*number])) {
        last = &run->pulled[*number];
        messages += last->messages;
        body_bytes += last->body_bytes;
    }
    return Py_BuildValue("(OLLnnL)", PyTuple_GetItem(first->checked, CHECKED_CLIENT), (long long)last->next_offset, (long long)last->commit_offset,
                         (Py_ssize_t)(last - first + 1), messages, (long long)body_bytes);
}

/* (number of pulls, [(client, next offset, commit offset, pulls, messages, their bytes)], pieces of the answers) */
static PyObject *outcome(const Run *run) {
    PyObject *rows = PyList_New(0);
    for (int number = 0; rows && number < run->count;) {
        PyObject *row = counted(run, &number);
        if (!row || PyList_Append(rows, row) < 0) Py_CLEAR(rows);
        Py_XDECREF(row);
    }
    PyObject *answers = rows ? pieces_of(run) : NULL;
    if (answers) return Py_BuildValue("(iNN)", run->count, rows, answers);
    Py_XDECREF(rows);
    return NULL;
}

static void close_run(Run *run) {
    for (int number = 0; number < run->count; number++) {
        Py_DECREF(run->pulled[number].checked);
        Py_XDECREF(run->pulled[number].packed);
    }
    Py_XDECREF(run->last_header);
    for (int number = 0; number < run->map_count; number++) PyBuffer_Release(&run->maps[number].bytes);
    out_free(&run->key);
    out_free(&run->heads);
    out_free(&run->ranges);
    out_free(&run->picked);
}

/* serve_pulls(frames, at, checked_pulls, resets, bounds, map_at, max_bytes)
 *     -> result, or None if the first is irregular
 *
 * It ends when the answers have at least `max_bytes` bytes: these must be sent first.
 */
PyObject *serve_pulls(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    enum { FRAMES, AT, CHECKED_PULLS, RESETS, BOUNDS, MAP_AT, MAX_BYTES, ARGUMENTS };
    (void)module;
    if (count != ARGUMENTS) return PyErr_Format(PyExc_TypeError, "serve_pulls takes %d arguments, got %zd", ARGUMENTS, count);
    PyObject *frames = arguments[FRAMES];
    if (!PyList_Check(frames) || !PyDict_Check(arguments[CHECKED_PULLS]) || !PyDict_Check(arguments[RESETS]))
        return PyErr_Format(PyExc_TypeError, "frames must be a list, checked pulls and resets dicts");
    Run run = {.checked_pulls = arguments[CHECKED_PULLS], .resets = arguments[RESETS], .map_at = arguments[MAP_AT]};
    Py_ssize_t at = PyLong_AsSsize_t(arguments[AT]);
    const int64_t max_bytes = PyLong_AsLongLong(arguments[MAX_BYTES]);
    if (PyErr_Occurred() || !read_bounds(arguments[BOUNDS], &run.bounds)) return NULL;
    if (at < 0) return PyErr_Format(PyExc_ValueError, "offsets must not be negative");
    for (bool served = true; served && run.count < MAX_RUN && run.size < max_bytes && at < PyList_Size(frames); at++) {
        PyObject *frame = Py_NewRef(PyList_GetItem(frames, at)); /* reading entries calls Python, which could change
                                                                    the list */
        served = take_pull(&run, frame);
        Py_DECREF(frame);
    }
    if (run.count) PyErr_Clear(); /* the next call begins with the failed pull and reports the error: earlier pulls
                                     are answered */
    PyObject *found = NULL;
    if (!PyErr_Occurred()) found = run.count ? outcome(&run) : Py_NewRef(Py_None);
    close_run(&run);
    return found;
}

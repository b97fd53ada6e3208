/* Reads the keys of the messages in a range of the log, and adds them to the slots of the index.
 *
 *   | head 88 | body … | topic length 1 or 2 | topic … | properties length 2 | … UNIQ_KEY 01 id 02 … KEYS 01 key key 02 … |
 *
 *   hash = Java's of "topic#key", made positive          entry: | hash 4 | log offset 8 | seconds 4 | previous 4 |
 */

#include "turn.h"

enum { INDEX_ENTRY = 20, PAGE_SHIFT = 10, PAGE_SLOTS = 1 << PAGE_SHIFT, MAX_SECONDS = 0x7FFFFFFF };

/* The fields of a record that the index needs. */
typedef struct {
    Py_ssize_t size;
    int64_t store_ms;
    bool rolled_back;
    Span topic, properties;
} Stored;

/* Reads the record at the beginning of `rest`; false if it is incomplete, or has IPv6 hosts. */
static bool read_stored(Span rest, Stored *stored) {
    if (rest.size < SMALLEST_RECORD) return false;
    const RecordHead *head = (const RecordHead *)rest.at;
    const int64_t size = get32(head->size), body = get32(head->body_size);
    const uint32_t magic = get32(head->magic), sys_flag = get32(head->sys_flag);
    const int wide = magic == MAGIC_V2;
    if ((magic != MAGIC_V1 && !wide) || sys_flag & HOST_FLAGS) return false;
    if (size > rest.size || size < SMALLEST_RECORD + wide || body > size - SMALLEST_RECORD - wide) return false;
    const byte *topic = rest.at + RECORD_HEAD + body;
    const int64_t topic_bytes = wide ? get16(topic) : *topic;
    const int64_t left = size - SMALLEST_RECORD - wide - body - topic_bytes; /* for the properties */
    if (left < 0) return false;
    topic += 1 + wide;
    if (get16(topic + topic_bytes) != left) return false;
    stored->size = (Py_ssize_t)size;
    stored->store_ms = (int64_t)get64(head->store_ms);
    stored->rolled_back = (sys_flag & TRANSACTION_FLAGS) == TRANSACTION_FLAGS;
    stored->topic = (Span){topic, (Py_ssize_t)topic_bytes};
    stored->properties = (Span){topic + topic_bytes + 2, (Py_ssize_t)left};
    return true;
}

static Span value_of(Span properties, Span name) {
    const Py_ssize_t found = span_find_last_name(properties, name);
    if (found < 0) return (Span){NULL, 0};
    const byte *start = properties.at + found + name.size, *limit = properties.at + properties.size;
    const byte *end = start < limit ? memchr(start, 2, (size_t)(limit - start)) : NULL;
    return (Span){start, (end ? end : limit) - start};
}

/* A key for the index; see `store.index.growing_index_file.PackedKeys`. It is no Python object: creating three
   numbers and a tuple for each of a million keys would cost more than everything else. */
typedef struct {
    int32_t hash;
    int64_t log_offset, store_ms;
} Key;

enum { KEY_BYTES = 20 };

static void add_key(Out *keys, uint32_t topic_hash, Span key, int64_t log_offset, int64_t store_ms) {
    const uint32_t hash = java_hash(topic_hash, key);
    const int32_t positive = (int32_t)(hash < 0x80000000u ? hash : (0u - hash) & 0x7FFFFFFFu); /* the smallest int
                                                                                                  becomes 0 */
    if (!out_need(keys, KEY_BYTES)) return;
    byte *at = keys->data + keys->used;
    memcpy(at, &positive, 4);
    memcpy(at + 4, &log_offset, 8);
    memcpy(at + 12, &store_ms, 8);
    keys->used += KEY_BYTES;
}

static Key get_key(const byte *at) {
    Key key;
    memcpy(&key.hash, at, 4);
    memcpy(&key.log_offset, at + 4, 8);
    memcpy(&key.store_ms, at + 12, 8);
    return key;
}

/* Adds the unique key and all others of a message. False if a text is not UTF-8 (then nothing is added), or with an
   error set. */
static bool add_keys(Out *keys, const Stored *stored, int64_t log_offset) {
    if (stored->rolled_back) return true;
    const Span unique = value_of(stored->properties, TEXT("UNIQ_KEY\x01"));
    Span others = value_of(stored->properties, TEXT("KEYS\x01"));
    if (!unique.size && !others.size) return true;
    if (!is_utf8(stored->topic) || !is_utf8(unique) || !is_utf8(others)) return false;
    const uint32_t topic_hash = java_hash(java_hash(0, stored->topic), TEXT("#"));
    if (unique.size) add_key(keys, topic_hash, unique, log_offset, stored->store_ms);
    while (others.size) {
        const byte *blank = memchr(others.at, ' ', (size_t)others.size);
        const Py_ssize_t size = blank ? blank - others.at : others.size;
        if (size) add_key(keys, topic_hash, (Span){others.at, size}, log_offset, stored->store_ms);
        const Py_ssize_t passed = size + (blank != NULL);
        others = (Span){others.at + passed, others.size - passed};
    }
    return !keys->failed;
}

/* Reads records from `at` on, which is advanced. Returns their number. */
static Py_ssize_t read_records(Span chunk, Py_ssize_t *at, int64_t base, Py_ssize_t most, Out *keys) {
    Py_ssize_t records = 0;
    Stored stored;
    while (records < most && read_stored((Span){chunk.at + *at, chunk.size - *at}, &stored) && add_keys(keys, &stored, base + *at)) {
        *at += stored.size;
        records++;
    }
    return records;
}

/* read_keys(chunk, at, base, most) -> (keys, packed; number of records; start of the next one in the chunk) */
PyObject *read_keys(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    Py_buffer view;
    if (count != 4) return PyErr_Format(PyExc_TypeError, "read_keys takes 4 arguments, got %zd", count);
    Py_ssize_t at = PyLong_AsSsize_t(arguments[1]);
    const int64_t base = PyLong_AsLongLong(arguments[2]);
    const Py_ssize_t most = PyLong_AsSsize_t(arguments[3]);
    if (PyErr_Occurred() || PyObject_GetBuffer(arguments[0], &view, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *found = NULL;
    Out keys = {0};
    if (at < 0 || at > view.len) {
        PyErr_Format(PyExc_ValueError, "%zd is not in the chunk", at);
    } else {
        const Py_ssize_t records = read_records((Span){view.buf, view.len}, &at, base, most, &keys);
        if (!PyErr_Occurred()) found = Py_BuildValue("(Nnn)", out_bytes(&keys), records, at);
    }
    out_free(&keys);
    PyBuffer_Release(&view);
    return found;
}

/* The slot of a key, in a page that is referenced meanwhile. */
typedef struct {
    Py_buffer page;
    int32_t *number;
    char *is_dirty;
} Slot;

/* Slots of so many keys are prefetched before the first is used: they are far apart in memory. */
enum { TOGETHER = 16 };

/* Finds a slot; false if its page is not in memory, or with an error set. */
static bool open_slot(PyObject *pages, PyObject *dirty, int64_t number, Slot *slot) {
    const Py_ssize_t page_number = (Py_ssize_t)(number >> PAGE_SHIFT), index = (Py_ssize_t)(number & (PAGE_SLOTS - 1));
    PyObject *page = PyList_GetItem(pages, page_number); /* IndexError beyond the last page */
    if (!page || page == Py_None) return false;
    if (page_number >= PyByteArray_Size(dirty)) {
        PyErr_SetString(PyExc_IndexError, "no mark for this page");
        return false;
    }
    if (PyObject_GetBuffer(page, &slot->page, PyBUF_WRITABLE) < 0) return false;
    if (slot->page.itemsize != 4 || index >= slot->page.len / 4) {
        PyErr_SetString(PyExc_IndexError, "no such slot in its page");
        PyBuffer_Release(&slot->page);
        return false;
    }
    slot->number = (int32_t *)slot->page.buf + index;
    slot->is_dirty = PyByteArray_AsString(dirty) + page_number;
    PREFETCH(slot->number);
    return true;
}

static void put_entry(Out *entries, const Key *key, int64_t begin_ms, int32_t previous) {
    const uint64_t seconds = key->store_ms <= begin_ms ? 0 : ((uint64_t)key->store_ms - (uint64_t)begin_ms) / 1000;
    byte *entry = entries->data + entries->used;
    put32(entry, (uint32_t)key->hash);
    put64(entry + 4, (uint64_t)key->log_offset);
    put32(entry + 12, (uint32_t)(seconds < MAX_SECONDS ? seconds : MAX_SECONDS));
    put32(entry + 16, (uint32_t)previous);
    entries->used += INDEX_ENTRY;
}

/* The index file, and the results of adding keys. */
typedef struct {
    PyObject *pages, *dirty;
    int64_t slots, number, begin_ms;
    Out entries;
    Py_ssize_t unused;
} Entering;

/* Adds the first of these keys, up to a limit, and returns their number. 0 if the page of the first is not in
   memory, or with an error set. */
static Py_ssize_t enter_some(Entering *to, Span keys) {
    Slot slots[TOGETHER];
    Py_ssize_t found = 0;
    while (found < TOGETHER && found < keys.size / KEY_BYTES) {
        const int32_t hash = get_key(keys.at + found * KEY_BYTES).hash;
        if (hash < 0) PyErr_SetString(PyExc_ValueError, "a hash must not be negative");
        if (hash < 0 || !open_slot(to->pages, to->dirty, hash % to->slots, &slots[found])) break;
        found++;
    }
    const bool has_space = out_need(&to->entries, found * INDEX_ENTRY);
    for (Py_ssize_t number = 0; number < found; number++) {
        if (has_space) {
            const Key key = get_key(keys.at + number * KEY_BYTES);
            const int32_t previous = *slots[number].number;
            *slots[number].number = (int32_t)to->number++;
            *slots[number].is_dirty = 1;
            put_entry(&to->entries, &key, to->begin_ms, previous);
            to->unused += !previous;
        }
        PyBuffer_Release(&slots[number].page);
    }
    return has_space ? found : 0;
}

/* Restores the slots from before these entries, which must be the last that were added. */
static void withdraw(PyObject *pages, PyObject *dirty, int64_t slots, Span entries) {
    for (Py_ssize_t at = entries.size - INDEX_ENTRY; at >= 0; at -= INDEX_ENTRY) {
        Slot slot;
        if (!open_slot(pages, dirty, (int64_t)get32(entries.at + at) % slots, &slot)) return;
        *slot.number = (int32_t)get32(entries.at + at + 16);
        PyBuffer_Release(&slot.page);
    }
}

/* withdraw_keys(entries, pages, dirty, slots) -> None
 *
 * Undoes an `enter_keys` whose entries could not be kept. It allocates no memory.
 */
PyObject *withdraw_keys(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (count != 4) return PyErr_Format(PyExc_TypeError, "withdraw_keys takes 4 arguments, got %zd", count);
    Span entries;
    if (!span_of_bytes(arguments[0], &entries)) return NULL;
    if (!PyList_Check(arguments[1]) || !PyByteArray_Check(arguments[2]))
        return PyErr_Format(PyExc_TypeError, "pages must be a list, their marks a bytearray");
    const int64_t slots = PyLong_AsLongLong(arguments[3]);
    if (PyErr_Occurred()) return NULL;
    if (slots <= 0 || entries.size % INDEX_ENTRY) return PyErr_Format(PyExc_ValueError, "a number is out of range");
    withdraw(arguments[1], arguments[2], slots, entries);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

/* enter_keys(keys, at, pages, dirty, slots, number, begin_ms) -> (number of keys, number of slots that were unused,
 * entries)
 *
 * It changes slots and the marks of their pages, unless it fails. It ends at a page that must be read first.
 */
PyObject *enter_keys(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (count != 7) return PyErr_Format(PyExc_TypeError, "enter_keys takes 7 arguments, got %zd", count);
    Entering to = {.pages = arguments[2], .dirty = arguments[3]};
    Span keys;
    if (!span_of_bytes(arguments[0], &keys)) return NULL;
    if (!PyList_Check(to.pages) || !PyByteArray_Check(to.dirty))
        return PyErr_Format(PyExc_TypeError, "pages must be a list, their marks a bytearray");
    Py_ssize_t at = PyLong_AsSsize_t(arguments[1]), entered;
    to.slots = PyLong_AsLongLong(arguments[4]);
    to.number = PyLong_AsLongLong(arguments[5]);
    to.begin_ms = PyLong_AsLongLong(arguments[6]);
    if (PyErr_Occurred()) return NULL;
    const Py_ssize_t first = at, end = keys.size / KEY_BYTES;
    if (at < 0 || at > end || to.slots <= 0 || to.number < 0 || to.number > INT32_MAX - (end - at))
        return PyErr_Format(PyExc_ValueError, "a number is out of range");
    while (at < end && (entered = enter_some(&to, (Span){keys.at + at * KEY_BYTES, (end - at) * KEY_BYTES}))) at += entered;
    PyObject *found = NULL;
    if (at > first) PyErr_Clear(); /* the next call begins with the failed key and reports the error: earlier keys
                                      are added */
    if (!PyErr_Occurred()) {
        found = Py_BuildValue("(nnN)", at - first, to.unused, out_bytes(&to.entries));
        if (!found) withdraw(to.pages, to.dirty, to.slots, (Span){to.entries.data, to.entries.used});
    }
    out_free(&to.entries);
    return found;
}

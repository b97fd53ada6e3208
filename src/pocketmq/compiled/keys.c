/* The keys of the messages in a stretch of the log, and their way into the slots of the index.
 *
 *   | head 88 | body … | topic length 1 or 2 | topic … | properties length 2 | … UNIQ_KEY 01 id 02 … KEYS 01 key key 02 … |
 *
 *   hash = Java's of "topic#key", made positive          entry: | hash 4 | log offset 8 | seconds 4 | previous 4 |
 */

#include "turn.h"

enum { SMALLEST = 91, INDEX_ENTRY = 20, PAGE_SHIFT = 10, PAGE_SLOTS = 1 << PAGE_SHIFT, MAX_SECONDS = 0x7FFFFFFF };
#define MAGIC_V1 0xDAA320A7u
#define MAGIC_V2 0xDAA320ABu

/* What the index needs of a record. */
typedef struct {
    Py_ssize_t size;
    int64_t store_ms;
    bool rolled_back;
    Span topic, properties;
} Stored;

/* Reads the record at the beginning of `rest`; false when it is not whole, or has IPv6 hosts. */
static bool read_stored(Span rest, Stored *stored) {
    if (rest.size < SMALLEST) return false;
    const int64_t size = get32(rest.at), body = get32(rest.at + 84);
    const uint32_t magic = get32(rest.at + 4), sys_flag = get32(rest.at + 36);
    const int wide = magic == MAGIC_V2;
    if ((magic != MAGIC_V1 && !wide) || sys_flag & HOST_FLAGS) return false;
    if (size > rest.size || size < SMALLEST + wide || body > size - SMALLEST - wide) return false;
    const byte *topic = rest.at + RECORD_HEAD + body;
    const int64_t topic_bytes = wide ? get16(topic) : *topic;
    const int64_t left = size - SMALLEST - wide - body - topic_bytes; /* for the properties */
    if (left < 0) return false;
    topic += 1 + wide;
    if (get16(topic + topic_bytes) != left) return false;
    stored->size = (Py_ssize_t)size;
    stored->store_ms = (int64_t)get64(rest.at + 56);
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

/* Both steps of a number by hand: formats of arguments, read anew for each of a million keys, would cost more than all the rest. */
static bool set_number(PyObject *tuple, Py_ssize_t place, int64_t number) {
    PyObject *object = PyLong_FromLongLong(number);
    return object && PyTuple_SetItem(tuple, place, object) == 0;
}

static bool get_number(PyObject *tuple, Py_ssize_t place, int64_t *number) {
    *number = PyLong_AsLongLong(PyTuple_GetItem(tuple, place));
    return *number != -1 || !PyErr_Occurred();
}

/* Adds one key; false with an error set. */
static bool add_key(PyObject *keys, uint32_t topic_hash, Span key, int64_t log_offset, int64_t store_ms) {
    const uint32_t hash = java_hash(topic_hash, key);
    const uint32_t positive = hash < 0x80000000u ? hash : (0u - hash) & 0x7FFFFFFFu; /* the smallest int becomes 0 */
    PyObject *placed = PyTuple_New(3);
    const bool made = placed && set_number(placed, 0, positive) && set_number(placed, 1, log_offset) && set_number(placed, 2, store_ms);
    const bool added = made && PyList_Append(keys, placed) == 0;
    Py_XDECREF(placed);
    return added;
}

/* Adds the unique key and all others of a message; false when a text is not UTF-8, before anything is added, or with an error set. */
static bool add_keys(PyObject *keys, const Stored *stored, int64_t log_offset) {
    if (stored->rolled_back) return true;
    const Span unique = value_of(stored->properties, TEXT("UNIQ_KEY\x01"));
    Span others = value_of(stored->properties, TEXT("KEYS\x01"));
    if (!unique.size && !others.size) return true;
    if (!is_utf8(stored->topic) || !is_utf8(unique) || !is_utf8(others)) return false;
    const uint32_t topic_hash = java_hash(java_hash(0, stored->topic), TEXT("#"));
    if (unique.size && !add_key(keys, topic_hash, unique, log_offset, stored->store_ms)) return false;
    while (others.size) {
        const byte *blank = memchr(others.at, ' ', (size_t)others.size);
        const Py_ssize_t size = blank ? blank - others.at : others.size;
        if (size && !add_key(keys, topic_hash, (Span){others.at, size}, log_offset, stored->store_ms)) return false;
        const Py_ssize_t passed = size + (blank != NULL);
        others = (Span){others.at + passed, others.size - passed};
    }
    return true;
}

/* read_keys(chunk, at, base, most) -> ([(hash, log offset, store ms)], how many records, where the next begins in the chunk) */
PyObject *read_keys(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    Span chunk;
    if (count != 4) return PyErr_Format(PyExc_TypeError, "read_keys takes 4 arguments, got %zd", count);
    if (!span_of_bytes(arguments[0], &chunk)) return NULL;
    Py_ssize_t at = PyLong_AsSsize_t(arguments[1]);
    const int64_t base = PyLong_AsLongLong(arguments[2]);
    const Py_ssize_t most = PyLong_AsSsize_t(arguments[3]);
    if (PyErr_Occurred()) return NULL;
    if (at < 0 || at > chunk.size) return PyErr_Format(PyExc_ValueError, "%zd is not in the chunk", at);
    PyObject *keys = PyList_New(0);
    if (!keys) return NULL;
    Py_ssize_t records = 0;
    Stored stored;
    while (records < most && read_stored((Span){chunk.at + at, chunk.size - at}, &stored) && add_keys(keys, &stored, base + at)) {
        at += stored.size;
        records++;
    }
    if (!PyErr_Occurred()) return Py_BuildValue("(Nnn)", keys, records, at);
    Py_DECREF(keys);
    return NULL;
}

/* Puts a number into its slot and gives what was there; false when the page is not in memory, or with an error set. */
static bool swap_slot(PyObject *pages, PyObject *dirty, int64_t slot, int32_t number, int32_t *previous) {
    const Py_ssize_t page_number = (Py_ssize_t)(slot >> PAGE_SHIFT), index = (Py_ssize_t)(slot & (PAGE_SLOTS - 1));
    PyObject *page = PyList_GetItem(pages, page_number); /* IndexError beyond the last */
    if (!page || page == Py_None) return false;
    if (page_number >= PyByteArray_Size(dirty)) {
        PyErr_SetString(PyExc_IndexError, "no mark for this page");
        return false;
    }
    Py_buffer view;
    if (PyObject_GetBuffer(page, &view, PyBUF_WRITABLE) < 0) return false;
    const bool fits = view.itemsize == 4 && index < view.len / 4;
    if (fits) {
        *previous = ((int32_t *)view.buf)[index];
        ((int32_t *)view.buf)[index] = number;
        PyByteArray_AsString(dirty)[page_number] = 1;
    } else {
        PyErr_SetString(PyExc_IndexError, "no such slot in its page");
    }
    PyBuffer_Release(&view);
    return fits;
}

static bool read_key(PyObject *key, int64_t *hash, int64_t *log_offset, int64_t *store_ms) {
    if (PyTuple_Check(key) && PyTuple_Size(key) == 3 && get_number(key, 0, hash) && get_number(key, 1, log_offset) &&
        get_number(key, 2, store_ms) && *hash >= 0 && *hash <= INT32_MAX)
        return true;
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a key is a tuple of hash, log offset and store time");
    return false;
}

/* enter_keys(keys, at, pages, dirty, slots, number, begin_ms) -> (how many, how many slots were unused, their entries)
 *
 * The one function that changes what it is given: slots, and the marks of their pages. It ends at a page that has to be read first.
 */
PyObject *enter_keys(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (count != 7) return PyErr_Format(PyExc_TypeError, "enter_keys takes 7 arguments, got %zd", count);
    PyObject *keys = arguments[0], *pages = arguments[2], *dirty = arguments[3];
    if (!PyList_Check(keys) || !PyList_Check(pages) || !PyByteArray_Check(dirty))
        return PyErr_Format(PyExc_TypeError, "keys and pages are lists, their marks a bytearray");
    Py_ssize_t at = PyLong_AsSsize_t(arguments[1]);
    const int64_t slots = PyLong_AsLongLong(arguments[4]);
    int64_t number = PyLong_AsLongLong(arguments[5]);
    const int64_t begin_ms = PyLong_AsLongLong(arguments[6]);
    if (PyErr_Occurred()) return NULL;
    const Py_ssize_t first = at, end = PyList_Size(keys);
    if (at < 0 || slots <= 0 || number < 0 || number > INT32_MAX - (end - at))
        return PyErr_Format(PyExc_ValueError, "a number is out of range");
    Out entries = {0};
    Py_ssize_t unused = 0;
    for (; at < end; at++, number++) {
        int32_t previous;
        int64_t hash, log_offset, store_ms;
        if (!read_key(PyList_GetItem(keys, at), &hash, &log_offset, &store_ms)) break;
        if (!out_need(&entries, INDEX_ENTRY)) break;
        if (!swap_slot(pages, dirty, hash % slots, (int32_t)number, &previous)) break;
        const uint64_t seconds = store_ms <= begin_ms ? 0 : ((uint64_t)store_ms - (uint64_t)begin_ms) / 1000;
        byte *entry = entries.data + entries.used;
        put32(entry, (uint32_t)hash);
        put64(entry + 4, (uint64_t)log_offset);
        put32(entry + 12, (uint32_t)(seconds < MAX_SECONDS ? seconds : MAX_SECONDS));
        put32(entry + 16, (uint32_t)previous);
        entries.used += INDEX_ENTRY;
        unused += !previous;
    }
    PyObject *found = NULL;
    if (at > first) PyErr_Clear(); /* told when the next call begins with what failed: those before it are entered */
    if (!PyErr_Occurred()) found = Py_BuildValue("(nnN)", at - first, unused, out_bytes(&entries));
    out_free(&entries);
    return found;
}

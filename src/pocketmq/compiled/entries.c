/* Selects the messages of one pull: the loop of `store.reading`, over the entries of a queue.
 *
 *   | log offset 8 | size 4 | tags code 8 |   again and again ──► ranges of the log, adjacent ones joined
 *
 * Several ranges in one file of the log are joined here by a copy; Python would create a view of each.
 */

#include "turn.h"

enum { NOTHING_HERE = 0x7FFFFFFF };

int holds_code(Codes *codes, int64_t code) {
    if (!codes->set) return 1;
    const size_t slot = (size_t)(code ^ code >> 4 ^ code >> 9) % RECENT_CODES;
    if (codes->answers[slot] && codes->recent[slot] == code) return codes->answers[slot] == 1;
    PyObject *number = PyLong_FromLongLong(code);
    if (!number) return -1;
    const int found = PySequence_Contains(codes->set, number);
    Py_DECREF(number);
    if (found < 0) return -1;
    codes->recent[slot] = code;
    codes->answers[slot] = found ? 1 : 2;
    return found;
}

static bool is_enough(const Pick *pick, int64_t offset, int64_t size) {
    if (!pick->count) return false;
    const ReadBounds *bounds = &pick->bounds;
    if (offset >= bounds->cold_below) return pick->count >= bounds->hot_count || pick->total + size > bounds->hot_bytes;
    return pick->count >= bounds->cold_count || pick->total + size > bounds->cold_bytes;
}

static void add_stretch(Pick *pick, int64_t offset, int64_t size) {
    LogRange *last = pick->ranges.used ? (LogRange *)(pick->ranges.data + pick->ranges.used) - 1 : NULL;
    if (last && last->offset + last->size == offset) {
        last->size += size;
    } else {
        const LogRange next = {offset, size};
        out_put(&pick->ranges, (const byte *)&next, sizeof next);
    }
}

/* Examines one entry; false if it is the first of the next pull, or with an error set. */
static bool look_at(Pick *pick, const QueueEntry *entry) {
    const int64_t offset = (int64_t)get64(entry->log_offset), code = (int64_t)get64(entry->tags_code);
    const int32_t size = (int32_t)get32(entry->size);
    if (size <= 0 || size >= NOTHING_HERE || offset < pick->bounds.log_start || offset > pick->bounds.log_end - size) {
        pick->removed = true;
        pick->looked++;
        return true;
    }
    if (is_enough(pick, offset, size)) {
        pick->stopped = true;
        return false;
    }
    const int wanted = holds_code(&pick->wanted, code);
    if (wanted < 0) return false;
    pick->looked++;
    pick->looked_at = offset;
    if (!wanted) return true;
    pick->count++;
    pick->total += size;
    add_stretch(pick, offset, size);
    return !pick->ranges.failed;
}

bool pick_from(Pick *pick, Span entries) {
    for (Py_ssize_t at = 0; entries.size - at >= ENTRY_BYTES && look_at(pick, (const QueueEntry *)(entries.at + at)); at += ENTRY_BYTES) continue;
    return !PyErr_Occurred();
}

/* The bytes of all ranges, if they are in this map, which begins at `first`; NULL without an error if they are not. */
static PyObject *gathered(const Pick *pick, const LogRange *ranges, Py_ssize_t count, const Py_buffer *map, int64_t first) {
    for (Py_ssize_t number = 0; number < count; number++) {
        const int64_t at = ranges[number].offset - first;
        if (at < 0 || at > map->len - ranges[number].size) return NULL;
    }
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)pick->total);
    if (!bytes) return NULL;
    char *to = PyBytes_AsString(bytes);
    for (Py_ssize_t number = 0; number < count; number++) {
        memcpy(to, (const char *)map->buf + (ranges[number].offset - first), (size_t)ranges[number].size);
        to += ranges[number].size;
    }
    return bytes;
}

static PyObject *range_list(const LogRange *ranges, Py_ssize_t count) {
    PyObject *list = PyList_New(0);
    for (Py_ssize_t number = 0; list && number < count; number++) {
        PyObject *one = Py_BuildValue("(LL)", (long long)ranges[number].offset, (long long)ranges[number].size);
        if (!one || PyList_Append(list, one) < 0) Py_CLEAR(list);
        Py_XDECREF(one);
    }
    return list;
}

/* The same, with the map of the first range: `map_at(offset)` returns (map or None, its start). */
static PyObject *gathered_from(const Pick *pick, const LogRange *ranges, Py_ssize_t count, PyObject *map_at) {
    PyObject *found = PyObject_CallFunction(map_at, "L", (long long)ranges[0].offset);
    PyObject *bytes = NULL, *map_object;
    long long first;
    Py_buffer map;
    if (!found) return NULL;
    if (!PyTuple_Check(found)) {
        PyErr_SetString(PyExc_TypeError, "a map comes as a tuple with its offset");
    } else if (PyArg_ParseTuple(found, "OL", &map_object, &first) && map_object != Py_None && first >= 0) {
        if (PyObject_GetBuffer(map_object, &map, PyBUF_SIMPLE) == 0) {
            bytes = gathered(pick, ranges, count, &map, first);
            PyBuffer_Release(&map);
        }
    }
    Py_DECREF(found);
    return bytes;
}

PyObject *picked_bytes(const Pick *pick, PyObject *map_at) {
    return gathered_from(pick, (const LogRange *)pick->ranges.data, pick->ranges.used / (Py_ssize_t)sizeof(LogRange), map_at);
}

static PyObject *found_bytes(const Pick *pick, PyObject *map_at) {
    const LogRange *ranges = (const LogRange *)pick->ranges.data;
    const Py_ssize_t count = pick->ranges.used / (Py_ssize_t)sizeof(LogRange);
    PyObject *bytes = count > 1 ? gathered_from(pick, ranges, count, map_at) : NULL;
    return bytes || PyErr_Occurred() ? bytes : range_list(ranges, count);
}

bool read_bounds(PyObject *tuple, ReadBounds *bounds) {
    long long start, end, cold_below, hot_count, cold_count, hot_bytes, cold_bytes, entries, max_count;
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "bounds of a read are a tuple");
        return false;
    }
    if (!PyArg_ParseTuple(tuple, "LLLLLLLLL", &start, &end, &cold_below, &hot_count, &cold_count, &hot_bytes, &cold_bytes, &entries, &max_count))
        return false;
    if (start < 0 || end < start) {
        PyErr_SetString(PyExc_ValueError, "offsets must not be negative, and the log must not end before its start");
        return false;
    }
    *bounds = (ReadBounds){start, end, cold_below, hot_count, cold_count, hot_bytes, cold_bytes, entries, max_count};
    return true;
}

/* pick_entries(entries, bounds, tag_codes, map_at)
 *     -> (stopped, some were removed, number of entries read, log offset of the last one, count, size, bytes or
 *     ranges) */
PyObject *pick_entries(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (count != 4) return PyErr_Format(PyExc_TypeError, "pick_entries takes 4 arguments, got %zd", count);
    Span entries;
    Pick pick = {.looked_at = -1, .wanted = {.set = arguments[2] == Py_None ? NULL : arguments[2]}};
    if (!span_of_bytes(arguments[0], &entries) || !read_bounds(arguments[1], &pick.bounds)) return NULL;
    pick.bounds.hot_count = least(pick.bounds.hot_count, pick.bounds.max_count);
    pick.bounds.cold_count = least(pick.bounds.cold_count, pick.bounds.max_count);
    PyObject *found = NULL, *bytes = pick_from(&pick, entries) ? found_bytes(&pick, arguments[3]) : NULL;
    if (bytes)
        found = Py_BuildValue("(OOnLnLN)", pick.stopped ? Py_True : Py_False, pick.removed ? Py_True : Py_False, pick.looked,
                              (long long)pick.looked_at, pick.count, (long long)pick.total, bytes);
    out_free(&pick.ranges);
    return found;
}

/* Shared by the compiled functions: spans and buffers of bytes, numbers in network order, layouts of records and queue entries,
 * heads of requests, and the parameters of a read of a queue.
 *
 * Rules for changes:
 *   - A function computes and returns its result to Python, which decides and commits. It changes only its own memory. The exceptions
 *     are listed in `compiled/__init__.py`: `enter_keys` and `withdraw_keys` write to pages of the index, `serve_pulls` keeps queue entries
 *     that it read ahead.
 *   - An irregular case is declined, never half done: Python serves it, with the exact error if there is one.
 *   - Bytes come from untrusted peers. Check every position against an end before you read it; compare sizes by subtraction, which
 *     cannot overflow, and never by addition of a received number.
 *   - The tables of the checksum are filled once, and the processor is examined once; no other state is kept between calls. The
 *     interpreter lock is held throughout.
 */

#ifndef POCKETMQ_TURN_H
#define POCKETMQ_TURN_H

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef unsigned char byte;

/* A range of bytes that another object owns. */
typedef struct {
    const byte *at;
    Py_ssize_t size;
} Span;

/* Prefetches memory that will be read soon. */
#if defined(__GNUC__)
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define PREFETCH(address) ((void)(address))
#endif

#define TEXT(literal) ((Span){(const byte *)(literal), sizeof(literal) - 1})

static inline bool span_is(Span span, Span other) { return span.size == other.size && !memcmp(span.at, other.at, (size_t)other.size); }

bool span_holds(Span span, Span part);
/* The first or last position of `part` in `span`; -1 if there is none. */
Py_ssize_t span_find(Span span, Span part);
Py_ssize_t span_find_last_name(Span properties, Span name_and_end);
bool span_of_bytes(PyObject *object, Span *span);

/* Growing bytes. A failed growth sets MemoryError and `failed`; later writes do nothing. */
typedef struct {
    byte *data;
    Py_ssize_t used, capacity;
    bool failed;
} Out;

bool out_grow(Out *out, Py_ssize_t more);

static inline bool out_need(Out *out, Py_ssize_t more) { return (!out->failed && more <= out->capacity - out->used) || out_grow(out, more); }

static inline void out_put(Out *out, const byte *data, Py_ssize_t size) {
    if (!size || !out_need(out, size)) return;
    memcpy(out->data + out->used, data, (size_t)size);
    out->used += size;
}

static inline void out_span(Out *out, Span span) { out_put(out, span.at, span.size); }

void out_number(Out *out, int64_t number);
void out_hex16(Out *out, uint64_t number);
PyObject *out_bytes(const Out *out);
void out_free(Out *out);

/* Numbers in network order. They are inline, because each record has twenty of them. */
static inline void put16(byte *at, uint32_t number) {
    at[0] = (byte)(number >> 8);
    at[1] = (byte)number;
}

static inline void put32(byte *at, uint32_t number) {
    at[0] = (byte)(number >> 24);
    at[1] = (byte)(number >> 16);
    at[2] = (byte)(number >> 8);
    at[3] = (byte)number;
}

static inline void put64(byte *at, uint64_t number) {
    put32(at, (uint32_t)(number >> 32));
    put32(at + 4, (uint32_t)number);
}

static inline uint32_t get16(const byte *at) { return (uint32_t)at[0] << 8 | at[1]; }
static inline uint32_t get32(const byte *at) { return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]; }
static inline uint64_t get64(const byte *at) { return (uint64_t)get32(at) << 32 | get32(at + 4); }

/* Instructions that only some processors have; false until `prepare_processor` has looked. */
extern bool has_pclmul, has_avx2;
void prepare_processor(void);

/* CRC-32 as zlib computes it. `prepare_crc` fills its tables once. */
void prepare_crc(void);
uint32_t crc_of(Span body);

/* Java's String.hashCode of a valid UTF-8 text, continued from the hash of the text before it. */
uint32_t java_hash(uint32_t before, Span text);
bool is_ascii(Span text);
/* Whether a text is UTF-8 as in Python. Raises nothing. */
bool is_utf8(Span text);

/* A frame: `compiled.Frame`. */
enum { FRAME_ENCODING, FRAME_HEADER, FRAME_BODY, FRAME_PARTS };

/* Header and body of a frame with a JSON header; false if it has none, or with an error set. */
bool read_frame(PyObject *frame, Span *header, Span *body);

/* The regular head of a send: its numbers, and its texts as spans of the header. */
typedef struct {
    Span topic, queue_text, properties;
    int64_t queue_id, sys_flag, born_ms, flag, reconsume_times;
    int64_t opaque;
    bool oneway, batch;
} SendHead;

/* Reads the JSON header of a send with code 310, or of a batch with code 320. `scratch` holds its properties, which
 * must not move before they are used.
 * False if it is irregular. */
bool read_send_head(Span header, Out *scratch, SendHead *head);

/* The regular head of a pull. Missing texts are NULL. */
typedef struct {
    Span group, topic, subscription, expression_type;
    int64_t code, queue_id, queue_offset, most, sys_flag, commit_offset, sub_version;
    int64_t opaque;
    Span header, offset_text, opaque_text; /* the whole header, and the positions of two of its numbers */
} PullHead;

/* Reads the JSON header of a pull with code 11 or 361. False if it is irregular. */
bool read_pull_head(Span header, PullHead *head);
/* Reads a header that differs from `before` only in offset and opaque, as the next one of a reader usually does;
   false for others. */
bool read_next_pull_head(Span header, const PullHead *before, PullHead *head);

/* Values that the records of one turn share. */
typedef struct {
    Span suffix, born_host, store_host;
    int64_t store_ms, max_body_bytes;
} RecordPlan;

/* One message to encode. `measure_record` sets the last two fields. */
typedef struct {
    Span topic_field, body, properties;
    int64_t magic, queue_id, queue_offset, log_offset, flag, sys_flag, born_ms, reconsume_times;
    int64_t size, tags_code;
} Record;

/* The fields of a record with IPv4 hosts before its body, and a queue entry, in network order. Python has the same
   in `protocol.record` and `store.queues.consume_queue`, and a test compares them. A field is an array of bytes, so
   that the structs have no gaps and need no alignment. */
#define RECORD_FIELDS(FIELD) \
    FIELD(size, 4) FIELD(magic, 4) FIELD(body_crc, 4) FIELD(queue_id, 4) FIELD(flag, 4) FIELD(queue_offset, 8) FIELD(log_offset, 8) \
    FIELD(sys_flag, 4) FIELD(born_ms, 8) FIELD(born_host, 8) FIELD(store_ms, 8) FIELD(store_host, 8) FIELD(reconsume_times, 4) \
    FIELD(prepared_offset, 8) FIELD(body_size, 4)
#define ENTRY_FIELDS(FIELD) FIELD(log_offset, 8) FIELD(size, 4) FIELD(tags_code, 8)
#define AS_BYTES(name, bytes) byte name[bytes];

typedef struct {
    RECORD_FIELDS(AS_BYTES)
} RecordHead;

typedef struct {
    ENTRY_FIELDS(AS_BYTES)
} QueueEntry;

/* The smallest record has only the lengths of body, topic and properties. */
enum { RECORD_HEAD = sizeof(RecordHead), SMALLEST_RECORD = RECORD_HEAD + 3, ENTRY_BYTES = sizeof(QueueEntry), MAX_PROPERTIES = 32767 };
#define CRC_MASK 0x7FFFFFFFu
#define MAGIC_V1 0xDAA320A7u
#define MAGIC_V2 0xDAA320ABu
#define HOST_FLAGS ((1 << 4) | (1 << 5))
#define TRANSACTION_FLAGS (3 << 2)
#define CLIENT_FLAGS (1 | (1 << 1) | (7 << 8)) /* SysFlag.OF_CLIENTS */

/* False if Python must encode the message: a part is too large, the properties contain zeros, or the tag is not
   UTF-8. */
bool measure_record(Record *record, const RecordPlan *plan);
/* Writes a measured record, and its queue entry. */
void put_record(const Record *record, const RecordPlan *plan, Out *records, Out *entries);
/* Encodes the messages of a batch, at most `most`, up to the log offset `limit`. `record` has their common values
   and the position of the first one; afterwards, that of the next. Returns their number; 0 if Python must encode
   them, or with an error set. */
typedef struct {
    const RecordPlan *plan;
    Span id_prefix;
    int64_t limit;
    Py_ssize_t most;
    Out *records, *entries, *ids;
} BatchPlan;

Py_ssize_t put_batch(const BatchPlan *plan, Span body, Record *record);
/* Fills a plan; false, with an error set, if the arguments are invalid. */
bool plan_records(RecordPlan *plan, PyObject *suffix, PyObject *born_host, PyObject *store_host);

/* Adjacent messages in the log. */
typedef struct {
    int64_t offset, size;
} LogRange;

/* A set of tags codes, and a cache of recent results: most queues have few tags. */
enum { RECENT_CODES = 16 };
typedef struct {
    PyObject *set; /* NULL if it contains all codes */
    int64_t recent[RECENT_CODES];
    byte answers[RECENT_CODES]; /* 0 before the first query */
} Codes;

/* Whether a code is in the set; -1 with an error set. */
int holds_code(Codes *codes, int64_t code);

/* The current limits of a read: `compiled.ReadBounds`, field by field. */
typedef struct {
    int64_t log_start, log_end, cold_below;
    int64_t hot_count, cold_count, hot_bytes, cold_bytes;
    int64_t entries, max_count;
} ReadBounds;

/* Fills the bounds from their tuple; false with an error set. */
bool read_bounds(PyObject *tuple, ReadBounds *bounds);

static inline int64_t least(int64_t one, int64_t other) { return one < other ? one : other; }

/* The messages of one pull: its limits, the examined entries, and the ranges found. */
typedef struct {
    ReadBounds bounds; /* with the limits of this pull */
    Codes wanted;
    Py_ssize_t looked, count;
    int64_t looked_at, total;
    bool stopped, removed;
    Out ranges;
} Pick;

/* Examines entries until the pull has enough; false with an error set. */
bool pick_from(Pick *pick, Span entries);
/* The bytes of its ranges, at least one, if they are in one map of the log; NULL without an error if they are not. */
PyObject *picked_bytes(const Pick *pick, PyObject *map_at);

/* A pack of bodies in progress: the number of missing records, and the positions of its next parts. */
typedef struct {
    byte *at, *start_at, *bodies_at, *body_at, *end;
    int64_t left;
} BodyPack;

/* Whether so many records can have so many bytes, and their pack is within the limits of Arrow columns. */
bool can_be_packed(int64_t count, int64_t record_bytes);
/* The size limit of their pack: if a pack is not much smaller, records are sent instead. */
int64_t pack_capacity(int64_t record_bytes);
void begin_pack(BodyPack *pack, byte *to, int64_t count, int64_t record_bytes);
/* False if a record is irregular, if there are more than announced, or if the pack is too large. */
bool put_bodies(BodyPack *pack, Span records);
/* The size of the pack; 0 if records are missing. */
int64_t end_pack(BodyPack *pack);
/* The bytes truncated to their size; NULL if that is 0, or with an error set. Steals the reference. */
PyObject *shrunk(PyObject *bytes, Py_ssize_t size);

PyObject *split_whole(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *lay_out_sends(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *serve_pulls(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *pick_entries(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *read_acks(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *lease_messages(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *lay_out_lease(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *count_sound(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *read_keys(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *enter_keys(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *withdraw_keys(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *record_starts(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *read_properties(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *gather(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *read_columns(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *pack_rows(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *pack_bodies(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *row_ids(PyObject *module, PyObject *const *arguments, Py_ssize_t count);

#endif

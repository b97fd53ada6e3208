"""POP on the wire and in the log: receipt handles, the offset texts of an answer, check points and acks.

    handle              start popTime invisibleTime reviveQueue flag broker queueId offset     one blank between fields
    start offsets       flag queueId start;…
    message offsets     flag queueId offset,offset,…;…
    order counts        flag qo<queueId>%<offset> count;…;flag queueId least;…

The flag says which topic a message is in: its own one, or one of the two retry topics of a group for it:

    0  T      1  %RETRY%group_T      2  %RETRY%group+T

A check point says which messages were leased together, an ack which of them are acknowledged. They are timed messages:
the timer moves them to the revive topic when the lease is over. Both are joined by topic, group, queue, start and time.
"""

import base64
import binascii
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from pocketmq.errors import BodyError, ImpossibleRequest
from pocketmq.model.names import RETRY_PREFIX, SYSTEM_PREFIX
from pocketmq.protocol.fields import Int32, Int64
from pocketmq.protocol.java_json import Body

ORDERLY_QUEUE: Final = 999
"""The revive queue in handles of orderly leases, which have no check points."""
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
"""The group whose offsets show up to where the revive topic is handled."""
MAX_BITS: Final = 4096
"""Limit on the offsets of one entry of a batch ack. A batch has at most 32 messages; filters leave gaps between them."""

CHECK_POINT_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"

NORMAL, RETRY_V1, RETRY_V2 = range(3)
"""The flags."""


def revive_topic(cluster: str) -> str:
    """The topic of check points and acks that are due."""
    return f"{SYSTEM_PREFIX}REVIVE_LOG_{cluster}"


def pop_retry_topic(group: str, topic: str, *, v2: bool) -> str:
    """The topic of messages of `topic` whose lease of the group ended without an ack."""
    return f"{RETRY_PREFIX}{group}{'+' if v2 else '_'}{topic}"


def flag_of(topic: str) -> int:
    """The flag of messages that are in `topic`."""
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY_V1


def retried_topic(group: str, topic: str) -> str:
    """The topic whose messages `topic` contains: itself, unless it is a retry topic of the group for another one."""
    for mark in ("_", "+"):
        if (rest := topic.removeprefix(f"{RETRY_PREFIX}{group}{mark}")) != topic:
            return rest
    return topic


class Handle(NamedTuple):
    """A receipt handle: POP_CK and `extraInfo`. `start` is that of its check point; after a change of the invisible time,
    it is the offset of the message itself.
    """

    start: int
    pop_ms: int
    invisible_ms: int
    revive_queue: int
    flag: int
    broker: str
    queue_id: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> "Handle":
        """ImpossibleRequest if the text is not a handle. As in RocketMQ, the last two fields may be missing, and a ninth one,
        from a proxy, is ignored.
        """
        words = text.split(" ")
        words += ["0"] * (8 - len(words)) if len(words) >= 6 else []
        try:
            start, pop_ms, invisible_ms, revive_queue, flag = map(_number, words[:5])
            handle = cls(start, pop_ms, invisible_ms, revive_queue, flag, words[5], *map(_number, words[6:8]))
        except (ValueError, IndexError, TypeError):
            raise ImpossibleRequest(f"the receipt handle {text[:80]!r} is not valid") from None
        return handle

    def text(self) -> str:
        return " ".join(map(str, self))


def _number(word: str) -> int:
    if len(word) > 19 or not word.removeprefix("-").isascii():
        raise ValueError
    number = int(word)
    if not -(2**63) <= number < 2**63:
        raise ValueError
    return number


class QueuePart(NamedTuple):
    """The messages of one queue in an answer."""

    flag: int
    queue_id: int
    start: int
    offsets: list[int]

    def start_text(self) -> str:
        return f"{self.flag} {self.queue_id} {self.start}"

    def offsets_text(self) -> str:
        return f"{self.flag} {self.queue_id} {','.join(map(str, self.offsets))}"

    def counts_texts(self, counts: dict[int, int]) -> Iterable[str]:
        """The entries for messages with a count, by offset, and the one for the queue."""
        for offset in self.offsets:
            if count := counts.get(offset, 0):
                yield f"{self.flag} qo{self.queue_id}%{offset} {count}"
        yield f"{self.flag} {self.queue_id} {min((counts.get(offset, 0) for offset in self.offsets), default=0)}"


class PoppedQueues(NamedTuple):
    """Start offsets and message offsets of an answer, by flag and queue. Very old brokers send no start offsets."""

    starts: dict[tuple[int, int], int]
    offsets: dict[tuple[int, int], set[int]]

    @classmethod
    def parse(cls, starts: str | None, offsets: str | None) -> "PoppedQueues":
        """BodyError if a text is malformed."""
        try:
            begins = {(flag, queue_id): _number(start) for flag, queue_id, start in _entries(starts)}
            found = {(flag, queue_id): {*map(_number, some.split(","))} for flag, queue_id, some in _entries(offsets)}
        except ValueError:
            raise BodyError(f"the offsets of a pop are malformed: {starts!r:.80}, {offsets!r:.80}") from None
        return cls(begins, found)

    def start(self, flag: int, queue_id: int, offset: int) -> int:
        """The start of the lease of a message. BodyError if the answer does not lease it."""
        key = flag, queue_id
        if not self.starts:
            return offset
        if key not in self.starts or (key in self.offsets and offset not in self.offsets[key]):
            raise BodyError(f"a pop returned offset {offset} of queue {queue_id} without a lease")
        return self.starts[key]


def order_counts(text: str | None) -> dict[tuple[int, int, int], int]:
    """How often each ordered message of an answer was delivered before, by flag, queue and offset. BodyError if the text is
    malformed. Entries of queues are left out: each message with a count has its own.
    """
    try:
        entries = [(flag, where[2:].split("%"), count) for flag, where, count in _texts(text) if where.startswith("qo")]
        return {
            (_number(flag), _number(queue), _number(offset)): _number(count) for flag, (queue, offset), count in entries
        }
    except ValueError:
        raise BodyError(f"the order counts of a pop are malformed: {text!r:.80}") from None


def _quoted(text: str) -> str:
    """A text in JSON. The group of an ack is what a client sent, and is not checked as a name."""
    return msgspec.json.encode(text).decode()


def _entries(text: str | None) -> Iterable[tuple[int, int, str]]:
    return ((_number(flag), _number(queue_id), rest) for flag, queue_id, rest in _texts(text))


def _texts(text: str | None) -> Iterable[tuple[str, str, str]]:
    for entry in (text or "").split(";"):
        if entry:
            flag, where, rest = entry.split(" ")
            yield flag, where, rest


class CheckPoint(Body, frozen=True):
    """The body of a check point. `distances` are the offsets of its messages after `start`."""

    start: Int64 = msgspec.field(name="so")
    pop_ms: Int64 = msgspec.field(name="pt")
    invisible_ms: Int64 = msgspec.field(name="it")
    queue_id: Int32 = msgspec.field(name="q")
    topic: str = msgspec.field(name="t")
    group: str = msgspec.field(name="c")
    count: Int32 = msgspec.field(default=0, name="n")
    distances: tuple[Int32, ...] | None = msgspec.field(default=None, name="d")
    broker: str = msgspec.field(default="", name="bn")
    bits: Int64 = msgspec.field(default=0, name="bm")
    revive_offset: Int64 = msgspec.field(default=0, name="ro")
    revive_ms: Int64 = msgspec.field(default=0, name="reviveTime")
    puts: str | None = msgspec.field(default=None, name="rp")
    suspended: bool | None = msgspec.field(default=None, name="sp")

    def encode(self, *, strict: bool = False) -> bytes:
        """The same bytes as of any body, in a tenth of the time."""
        if self.suspended is not None or self.puts is not None or self.distances is None:
            return super().encode(strict=strict)
        return (
            f'{{"bm":{self.bits},"bn":{_quoted(self.broker)},"c":{_quoted(self.group)},"d":[{",".join(map(str, self.distances))}],'
            f'"it":{self.invisible_ms},"n":{self.count},"pt":{self.pop_ms},"q":{self.queue_id},'
            f'"reviveTime":{self.revive_ms},"ro":{self.revive_offset},"so":{self.start},"t":{_quoted(self.topic)}}}'
        ).encode()

    def offsets(self) -> list[int]:
        """The queue offsets of its messages."""
        if self.distances is not None:
            return [self.start + distance for distance in self.distances]
        return list(range(self.start, self.start + max(0, min(self.count, MAX_BITS))))

    def key(self, broker: str) -> str:
        """The text that joins it with its acks; `broker` is the default of older records."""
        return f"{self.topic}{self.group}{self.queue_id}{self.start}{self.pop_ms}{self.broker or broker}"

    def unique_key(self) -> str:
        return f"{self.topic}@{self.queue_id}@{self.start}@{self.group}@{self.pop_ms}@{self.broker}@{CHECK_POINT_TAG}"


class Ack(Body, frozen=True):
    """The body of an ack of one offset; of several in `offsets` if there are any."""

    offset: Int64 = msgspec.field(name="ao")
    start: Int64 = msgspec.field(name="so")
    group: str = msgspec.field(name="c")
    topic: str = msgspec.field(name="t")
    queue_id: Int32 = msgspec.field(name="q")
    pop_ms: Int64 = msgspec.field(name="pt")
    broker: str = msgspec.field(default="", name="bn")
    offsets: tuple[Int64, ...] | None = msgspec.field(default=None, name="aol")

    @classmethod
    def read(cls, data: bytes) -> "Ack":
        """The ack in a record of any release. BodyError for other bytes."""
        try:
            return cls.decode(data)
        except BodyError:
            longer = LongAck.decode(data)
            return cls(*(getattr(longer, name) for name in LongAck.__struct_fields__))

    def encode(self, *, strict: bool = False) -> bytes:
        """The same bytes as of any body, in a tenth of the time."""
        several = "" if self.offsets is None else f',"aol":[{",".join(map(str, self.offsets))}]'
        return (
            f'{{"ao":{self.offset}{several},"bn":{_quoted(self.broker)},"c":{_quoted(self.group)},"pt":{self.pop_ms},'
            f'"q":{self.queue_id},"so":{self.start},"t":{_quoted(self.topic)}}}'
        ).encode()

    def acked(self) -> tuple[int, ...]:
        return (self.offset,) if self.offsets is None else self.offsets

    def key(self, broker: str) -> str:
        """The same text as of its check point."""
        return f"{self.topic}{self.group}{self.queue_id}{self.start}{self.pop_ms}{self.broker or broker}"

    def unique_key(self) -> str:
        acked, tag = (str(self.offset), ACK_TAG) if self.offsets is None else (str(list(self.offsets)), BATCH_ACK_TAG)
        return f"{self.topic}@{self.queue_id}@{acked}@{self.group}@{self.pop_ms}@{self.broker}@{tag}"


class LongAck(Body, frozen=True):
    """The same with the names of RocketMQ 5.0."""

    offset: Int64 = msgspec.field(name="ackOffset")
    start: Int64 = msgspec.field(name="startOffset")
    group: str = msgspec.field(name="consumerGroup")
    topic: str = msgspec.field(name="topic")
    queue_id: Int32 = msgspec.field(name="queueId")
    pop_ms: Int64 = msgspec.field(name="popTime")
    broker: str = msgspec.field(default="", name="brokerName")
    offsets: tuple[Int64, ...] | None = msgspec.field(default=None, name="ackOffsetList")


class BatchAckEntry(Body, frozen=True):
    """The acknowledged messages of one check point. `topic` is never a retry topic: `flag` names it. Bit i of `bits` is
    offset `start` + i.
    """

    group: str = msgspec.field(name="c")
    topic: str = msgspec.field(name="t")
    flag: str = msgspec.field(name="r")
    start: Int64 = msgspec.field(name="so")
    queue_id: Int32 = msgspec.field(name="q")
    revive_queue: Int32 = msgspec.field(name="rq")
    pop_ms: Int64 = msgspec.field(name="pt")
    invisible_ms: Int64 = msgspec.field(name="it")
    bits: str = msgspec.field(name="b")

    def real_topic(self) -> str:
        """The topic that the messages are in."""
        if self.flag in (str(RETRY_V1), str(RETRY_V2)):
            return pop_retry_topic(self.group, self.topic, v2=self.flag == str(RETRY_V2))
        return self.topic

    def offsets(self) -> list[int]:
        """The acknowledged offsets, at most `MAX_BITS`. BodyError if the bits are not base64."""
        try:
            raw = base64.b64decode(self.bits, validate=True)
        except (binascii.Error, ValueError):
            raise BodyError(f"the bits {self.bits[:40]!r} of a batch ack are not base64") from None
        bits = int.from_bytes(raw[: MAX_BITS // 8], "little")
        return [self.start + at for at in range(bits.bit_length()) if bits >> at & 1]


class BatchAck(Body, frozen=True):
    """The body of a batch ack."""

    broker_name: str | None = None
    acks: tuple[BatchAckEntry, ...] = ()


def encode_bits(start: int, offsets: Iterable[int]) -> str:
    """The bits of acknowledged offsets for a batch ack."""
    bits = 0
    for offset in offsets:
        bits |= 1 << offset - start
    return base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()

"""Compares what an Apache broker answers about a store with what must be in it. Each check returns the flaws it finds."""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from conformance.broker_line import BrokerLine
from conformance.store.snapshots import Snapshot, differences, read_from, unlike
from pocketmq.codes import BoundaryType, SysFlag
from pocketmq.errors import RemoteError
from pocketmq.model import properties as names
from pocketmq.model.message import StoredMessage

MAX_FOUND: Final = 32
"""Messages that every version gives for one key."""
FOREVER: Final = 2**63 - 1
AROUND_MS: Final = 2_000
"""A search by key asks for this much before and after the time that is wanted, as times are kept in seconds."""


def flaws_in_queues(line: BrokerLine, expected: Snapshot, growing: Collection[str] = ()) -> Iterator[str]:
    """Every message of every queue by pulling, with the bounds of the queues."""
    found = read_from(line, expected)
    yield from differences(expected, found, growing)
    for key, messages in expected.items():
        low = line.min_offset(*key)
        if messages and low != messages[0].queue_offset:
            yield f"{key[0]}:{key[1]} begins at {low} instead of {messages[0].queue_offset}"


def flaws_by_id(line: BrokerLine, expected: Iterable[StoredMessage]) -> Iterator[str]:
    """Find every message by its log offset, including messages that are in no queue."""
    for message in expected:
        try:
            yield from unlike(message, line.view(message.log_offset))
        except RemoteError as error:
            yield f"{message.topic} at {message.log_offset}: {error}"


def flaws_by_key(line: BrokerLine, expected: Iterable[StoredMessage], *, may_repeat: bool = False) -> Iterator[str]:
    """Every key and every unique key leads to its messages, all of them, and to no others; also when a time is given.

    `may_repeat`: after a crash Apache enters messages once more that its index knows already, and then gives them twice.
    """
    twice: set[int] = set()
    for (topic, key, is_unique), messages in _by_key(expected).items():
        times = [message.store_ms for message in messages]
        right = sorted(message.log_offset for message in messages if _is_indexed(message))
        for begin_ms, end_ms in ((0, FOREVER), (min(times) - AROUND_MS, max(times) + AROUND_MS)):
            messages_found = line.find_by_key(topic, key, begin_ms, end_ms, unique=is_unique)
            found = sorted(message.log_offset for message in messages_found)
            twice.update(offset for offset, count in Counter(found).items() if count > 1)
            if set(found) != set(right) and not (len(right) > MAX_FOUND and set(found) < set(right)):
                kind = "unique key" if is_unique else "key"
                yield (
                    f"{kind} {key!r} of {topic} between {begin_ms} and {end_ms} leads to log offsets {found} "
                    f"instead of {right}"
                )
    if twice and not may_repeat:
        yield f"{len(twice)} messages are found twice by one key, the first at log offset {min(twice)}"


def _by_key(messages: Iterable[StoredMessage]) -> dict[tuple[str, str, bool], list[StoredMessage]]:
    """Messages by topic, key, and whether it is the unique one."""
    found: dict[tuple[str, str, bool], list[StoredMessage]] = defaultdict(list)
    for message in messages:
        unique = message.properties.get(names.UNIQ_KEY)
        for key, is_unique in [(unique, True), *((key, False) for key in message.keys)]:
            if key:
                found[message.topic, key, is_unique].append(message)
    return found


def _is_indexed(message: StoredMessage) -> bool:
    return message.sys_flag & SysFlag.TRANSACTION_MASK != SysFlag.TRANSACTION_ROLLBACK


def flaws_by_tag(line: BrokerLine, expected: Snapshot) -> Iterator[str]:
    """A subscription to some tags gets the messages with these tags; the broker knows them by the queue entry alone."""
    for (topic, queue_id), messages in expected.items():
        tags = sorted({message.tags for message in messages if message.tags})
        for wanted in [*([tag] for tag in tags), tags[:2]]:
            found = [message.queue_offset for message in line.read_queue(topic, queue_id, " || ".join(wanted))]
            right = [message.queue_offset for message in messages if message.tags in wanted]
            if found != right:
                yield f"{topic}:{queue_id} with tags {wanted} gives offsets {found} instead of {right}"


def flaws_by_time(
    line: BrokerLine, expected: Snapshot, boundaries: Collection[BoundaryType] = tuple(BoundaryType)
) -> Iterator[str]:
    """The offset at a time: before all messages, at each of them, between them, and behind them."""
    for (topic, queue_id), messages in expected.items():
        times = [message.store_ms for message in messages]
        for when_ms in sorted({moment + step for moment in times for step in (-1, 0, 1)}):
            for boundary in boundaries:
                found = line.offset_at_time(topic, queue_id, when_ms, boundary)
                right = messages[0].queue_offset + _bound(times, when_ms, boundary)
                if found != right:
                    yield f"{topic}:{queue_id} at {when_ms} ({boundary}): offset {found} instead of {right}"


def _bound(times: Sequence[int], when_ms: int, boundary: BoundaryType) -> int:
    if boundary is BoundaryType.LOWER:
        return bisect_left(times, when_ms)
    return max(0, bisect_right(times, when_ms) - 1)


def flaws_by_nearest_time(line: BrokerLine, expected: Snapshot) -> Iterator[str]:
    """The same as 4.9 means it: any message of exactly that time, else one of the two neighbours."""
    for (topic, queue_id), messages in expected.items():
        times = [message.store_ms for message in messages]
        for when_ms in sorted({moment + step for moment in times for step in (-1, 0, 1)}):
            found = line.offset_at_time(topic, queue_id, when_ms)
            near = {
                times[at]
                for at in (bisect_left(times, when_ms), bisect_right(times, when_ms) - 1)
                if 0 <= at < len(times)
            }
            wanted = {when_ms} if when_ms in times else near
            at = found - messages[0].queue_offset
            if not 0 <= at < len(times) or times[at] not in wanted:
                yield f"{topic}:{queue_id} at {when_ms}: offset {found}, which is not near; near are {sorted(near)}"

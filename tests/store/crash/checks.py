"""Invariants of a store that was just opened, after any history.

Nothing here asks the code under test how things should be: the queues, keys and tables that the log implies are computed again,
in the plainest way, and compared.
"""

from collections.abc import Iterable
from pathlib import Path
from random import Random

from tests.store.crash.history import Sent
from tests.store.crash.life import TABLES
from tests.store.kit import ROOT
from tests.store.open_store import OpenStore

from pocketmq.codes import SysFlag
from pocketmq.files import files_below
from pocketmq.model.delay import DELAY_LEVELS
from pocketmq.model.java_hash import java_hash
from pocketmq.model.names import SCHEDULE_TOPIC
from pocketmq.model.properties import parse_properties
from pocketmq.protocol.record import decode_records
from pocketmq.store.layout import KnownSizes, find_layout
from pocketmq.store.log.segments import MAX_OFFSET
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queues.consume_queue import ENTRY
from pocketmq.store.queues.queues import QueueKey
from pocketmq.store.reading import ReadStatus
from pocketmq.store.settings import StoreSettings
from pocketmq.store.tables import Tables
from pocketmq.store.tools.findings import Finding, Severity
from pocketmq.store.tools.verify import Verification
from pocketmq.testing import FakeClock, FaultyFiles

Series = tuple[int, list[Sent]]
"""The messages of a queue, and the offset of the first."""


def series_of(records: Iterable[Sent]) -> dict[QueueKey, Series]:
    """The queues that a log implies. A queue whose offsets restart belongs to a recreated topic."""
    found: dict[QueueKey, Series] = {}
    for sent in records:
        if sent.sys_flag & SysFlag.TRANSACTION_PREPARED:
            continue
        key = (sent.topic, sent.queue_id)
        first, messages = found.get(key, (sent.queue_offset, []))
        if messages and sent.queue_offset < first + len(messages):
            first, messages = sent.queue_offset, []
        assert sent.queue_offset == first + len(messages), f"{key} has no message {first + len(messages)}"
        found[key] = first, [*messages, sent]
    return found


def check_queues(store: MessageStore, found: list[Sent], deleted: dict[str, set[int]], kept_from: int) -> None:
    """Every queue has the entries that the log implies; perhaps without those of messages before `kept_from`, whose files
    were dropped and came back.
    """
    implied = series_of(found)
    for key in {queue.key for queue in store._queues} | implied.keys():
        if key[0] not in deleted:
            flaw = _queue_flaw(store, key, implied.get(key, (0, [])), kept_from)
            assert not flaw, flaw
            continue
        since = [[sent for sent in found if sent.log_offset >= mark] for mark in deleted[key[0]]]
        flaws = [_queue_flaw(store, key, series_of(part).get(key, (0, [])), MAX_OFFSET) for part in since]
        assert not all(flaws), flaws


def _queue_flaw(store: MessageStore, key: QueueKey, series: Series, must_have: int) -> str:
    first, messages = series
    queue = store.find_queue(*key)
    if queue is None:
        return f"queue {key} with {len(messages)} messages is missing" if messages else ""
    end = first + len(messages)
    if not messages:
        return "" if queue.min_offset == queue.max_offset else f"queue {key} has messages that the log has not"
    if queue.max_offset != end or queue.next_offset != end:
        return f"queue {key} ends at {queue.max_offset}, not at {end}"
    first_kept = first + sum(sent.log_offset < must_have for sent in messages)
    if not first <= queue.min_offset <= first_kept:
        return f"queue {key} begins at {queue.min_offset}, not at {first} or up to {first_kept}"
    entries = list(queue.entries(queue.min_offset, end - queue.min_offset))
    expected = [(sent.log_offset, sent.size, _tags_code(store, sent)) for sent in messages[queue.min_offset - first :]]
    if entries != expected:
        return f"queue {key} from {queue.min_offset}: entries {entries}, expected {expected}"
    return ""


def _tags_code(store: MessageStore, sent: Sent) -> int:
    properties = parse_properties(sent.properties.decode())
    if sent.topic == SCHEDULE_TOPIC and "DELAY" in properties:
        message = store.message(sent.log_offset)
        assert message is not None
        return DELAY_LEVELS.due_ms(int(properties["DELAY"]), message.store_ms)
    return java_hash(properties.get("TAGS", ""))


def check_reads(store: MessageStore, found: list[Sent]) -> None:
    """A reader who starts at the beginning of a queue gets every message that has an entry, once and unchanged."""
    by_place = {sent.log_offset: sent for sent in found}
    for queue in store._queues:
        offset = queue.min_offset
        while offset < queue.max_offset:
            result = store.read(queue.topic, queue.queue_id, offset, 32)
            assert result.status is ReadStatus.FOUND, f"{queue.key} at {offset}: {result.status}"
            for message in decode_records(result.body()):
                sent = by_place[message.log_offset]
                assert (message.queue_offset, message.body, message.raw_properties) == (
                    offset,
                    sent.body,
                    sent.properties,
                )
                offset += 1
            assert result.next_offset == offset


def check_times(store: MessageStore, found: list[Sent]) -> None:
    """Store times never go back."""
    newest = 0
    for sent in found:
        message = store.message(sent.log_offset)
        assert message is not None
        assert message.store_ms >= newest, f"the message at {sent.log_offset} is older than one before it"
        newest = message.store_ms


def check_keys(store: MessageStore, found: list[Sent], kept_from: int, random: Random) -> None:
    """Once the index has caught up, every key leads to all of its messages, the newest first."""
    store._upkeep.index_for(10)
    while store._index.write_next():
        store._upkeep.index_for(10)
    assert not store._upkeep.index_backlog_bytes
    indexed = [sent for sent in found if sent.sys_flag & SysFlag.TRANSACTION_MASK != SysFlag.TRANSACTION_ROLLBACK]
    kept = [sent for sent in indexed if sent.log_offset >= kept_from]
    for sent in random.sample(kept, min(5, len(kept))):
        properties = parse_properties(sent.properties.decode())
        unique = store.find_by_key(sent.topic, properties["UNIQ_KEY"], 5, unique=True)
        assert [message.log_offset for message in unique] == [sent.log_offset], properties["UNIQ_KEY"]
        key = properties["KEYS"].split()[0]
        holders = [
            other.log_offset
            for other in reversed(kept)
            if other.topic == sent.topic and key in parse_properties(other.properties.decode())["KEYS"].split()
        ]
        by_key = [message.log_offset for message in store.find_by_key(sent.topic, key, 64)]
        assert by_key[: len(holders)] == holders[:64], key


def check_tables(disk: FaultyFiles, possible: dict[str, set[int | None]]) -> dict[str, int | None]:
    """Each table is one of the saved ones, complete; returns the values."""
    tables = Tables(disk, ROOT / "config")
    values: dict[str, int | None] = {}
    for name in TABLES:
        table = tables.load(name)
        values[name] = None if table is None else table["value"]
        assert values[name] in possible.get(name, {None}), (
            f"{name} is {values[name]}, possible are {possible.get(name)}"
        )
    return values


def check_rebuild(opened: OpenStore, clock: FakeClock, disk: FaultyFiles) -> None:
    """Derived files that are rebuilt from the log alone, on another disk, are the same byte for byte."""
    store = opened.store
    store._upkeep._unsynced.update(dict.fromkeys(store._queues.flush()))  # a clean stop after this has to sync them
    other = disk.crash(Random(0), survives="everything")
    for path in [*files_below(other, ROOT / "consumequeue"), *files_below(other, ROOT / "index")]:
        other.unlink(path)
    if other.status(ROOT / "checkpoint") is not None:
        other.unlink(ROOT / "checkpoint")
    rebuilt = OpenStore(store.settings, clock, other).store
    rebuilt._queues.flush()
    for queue in store._queues:
        if queue.min_offset == queue.max_offset:
            continue
        twin = rebuilt.find_queue(*queue.key)
        assert twin is not None, f"{queue.key} is not rebuilt"
        first = queue.file_of(queue.min_offset).name
        names = [name for name in disk.list(queue.folder) if name >= first]
        assert names == [name for name in other.list(queue.folder) if name >= first], queue.key
        for name in names:
            skipped = max(0, queue.min_offset * ENTRY.size - int(name))
            one, two = disk.read(queue.folder / name), other.read(queue.folder / name)
            assert one[skipped:] == two[skipped:], f"{queue.folder / name} differs from a rebuild"


def check_repeats(opened: OpenStore, clock: FakeClock, disk: FaultyFiles, *, after_kill: bool) -> None:
    """A second recovery, after a kill or a power loss, finds what the first one left; after a kill it changes nothing."""
    before = snapshot(disk)
    other = disk.crash(Random(0), survives="everything" if after_kill else "nothing")
    again = OpenStore(opened.store.settings, clock, other)
    assert again.report.log_end == opened.report.log_end
    assert not again.report.cut, again.report.cut
    assert {key: high for key, (_, high) in bounds(again.store).items()} == {
        key: high for key, (_, high) in bounds(opened.store).items()
    }
    if after_kill:
        after = snapshot(other)
        assert after == before, [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]


def check_clean_stop(opened: OpenStore, clock: FakeClock, disk: FaultyFiles, *, verify: bool) -> None:
    """A closed store is verified byte by byte, and opens unchanged, without a log scan."""
    expected = bounds(opened.store)
    opened.store.close()
    settings = opened.store.settings
    if verify:
        check_every_byte(disk, settings)
    again = OpenStore(settings, clock, disk.crash(Random(0), survives="nothing"))
    assert again.report.clean
    assert not again.report.records
    assert bounds(again.store) == expected


def check_every_byte(disk: FaultyFiles, settings: StoreSettings) -> None:
    """`pocketmq store verify` has no findings."""
    known = KnownSizes(
        log_file_bytes=settings.log_file_bytes,
        queue_file_entries=settings.queue_file_entries,
        index_slots=settings.index_slots,
        index_entries=settings.index_entries,
    )
    for event in Verification(disk, find_layout(disk, ROOT, known)).run():
        assert not isinstance(event, Finding) or event.severity is Severity.NOTE, event


def bounds(store: MessageStore) -> dict[QueueKey, tuple[int, int]]:
    """The ends of the queues; a queue that never had a message is omitted."""
    return {queue.key: (queue.min_offset, queue.max_offset) for queue in store._queues if queue.max_offset}


def snapshot(disk: FaultyFiles) -> dict[Path, bytes]:
    """Every file of the store, by its name."""
    return {path: disk.read(path) for path in files_below(disk, ROOT)}

"""The facts that a store reports about itself."""

from tests.store.kit import ROOT
from tests.store.open_store import OpenStore, numbered

from pocketmq.testing.fake_clock import START_MS


def test_a_new_store_has_zero_counts() -> None:
    facts = OpenStore.small().store.facts

    assert (facts.log_start, facts.log_end, facts.earliest_ms) == (0, 0, None)
    assert (facts.messages_accepted, facts.bytes_accepted, facts.unsynced_bytes) == (0, 0, 0)
    assert (facts.behind_bytes, facts.last_indexed, facts.free_pool_buffers) == (0, (0, 0), None)
    assert facts.log_folder == ROOT / "commitlog"


def test_accepted_messages_are_counted_from_the_opening() -> None:
    opened = OpenStore.small()
    opened.send(*numbered(3))
    before = opened.store.end
    again = opened.reopen()
    again.send(*numbered(2))

    facts = again.store.facts
    assert facts.messages_accepted == 2
    assert facts.bytes_accepted == again.store.end - before
    assert facts.unsynced_bytes == again.store.end - before
    assert facts.earliest_ms == START_MS


def test_a_turn_that_is_not_written_is_not_counted() -> None:
    opened = OpenStore.small()
    opened.stage()
    opened.store.abandon_turn()

    assert opened.store.facts.messages_accepted == 0
    assert opened.store.facts.bytes_accepted == 0


def test_the_index_is_reported_as_behind_until_it_is_complete() -> None:
    opened = OpenStore.small()
    opened.send(*numbered(3), properties="KEYS\x01k\x02")
    facts = opened.store.facts
    assert facts.behind_bytes == opened.store.end

    opened.tick()

    assert facts.behind_bytes == 0
    ms, offset = facts.last_indexed
    last = opened.store.message(offset)
    assert last is not None
    assert (ms, last.body) == (START_MS, numbered(3)[-1])


def test_without_an_index_only_the_queues_can_be_behind() -> None:
    opened = OpenStore.small(index_enabled=False)
    opened.send()

    assert opened.store.facts.behind_bytes == 0


def test_unwritten_bytes_of_the_pool_count_as_behind_and_use_buffers() -> None:
    opened = OpenStore.small(transient_pool=True, index_enabled=False)
    facts = opened.store.facts
    assert facts.free_pool_buffers == 4
    opened.send()

    assert facts.behind_bytes == facts.log_end > 0
    assert facts.messages_accepted == 0
    assert facts.free_pool_buffers == 3
    opened.run_workers()

    assert facts.behind_bytes == 0
    assert facts.messages_accepted == 1


def test_disk_usage_is_that_of_the_disk_of_the_store() -> None:
    opened = OpenStore.small()
    opened.disk.resize(1024 * 1024)

    assert opened.store.facts.disk == opened.disk.usage(ROOT)
    assert opened.store.facts.disk.total == 1024 * 1024

"""What a verification finds in queues and index that are damaged."""

import pytest
from tests.store.made_store import INDEX_ENTRIES, INDEX_SLOTS, LOG_FILE_BYTES, MadeStore

from pocketmq.store.layout import KnownSizes
from pocketmq.store.tools.findings import Finding, Kind, Severity
from pocketmq.store.tools.verify import Verification

ENTRIES_AT = 40 + 4 * INDEX_SLOTS


@pytest.fixture
def store() -> MadeStore:
    return MadeStore().fill()


@pytest.mark.parametrize(("field", "at"), [("log offset", 7), ("size", 11), ("tags code", 19)])
def test_a_flipped_bit_in_a_queue_entry_is_reported_for_that_entry(store: MadeStore, field: str, at: int) -> None:
    path, begin = store.queue_path("Orders", 1, 6)

    store.flip(path, begin + at)

    [finding] = store.findings()
    assert (finding.kind, finding.path, finding.begin, finding.end) == (
        Kind.QUEUE_ENTRY_WRONG,
        path,
        begin,
        begin + 20,
    )
    assert finding.text.startswith("entry 6 of Orders/1: the file has"), field


def test_two_swapped_entries_are_one_finding(store: MadeStore) -> None:
    path, begin = store.queue_path("Orders", 0, 4)
    data = store.read(path)

    store.write(path, data[20:40] + data[:20], begin)

    [finding] = store.findings()
    assert (finding.kind, finding.path, finding.begin, finding.end) == (Kind.QUEUE_ENTRY_WRONG, path, 0, 40)
    assert finding.text.startswith("entries 4 to 5 of Orders/0: of the first,")


def test_zeroed_entries_are_reported_as_missing(store: MadeStore) -> None:
    path, begin = store.queue_path("Bills", 0, 5)

    store.write(path, bytes(40), begin)

    assert store.told() == [("queue-entry-missing", path, begin, begin + 40)]


def test_an_entry_after_the_last_message_is_stale(store: MadeStore) -> None:
    path, begin = store.queue_path("Orders", 0, 15)
    before, at = store.queue_path("Orders", 0, 14)

    store.write(path, store.read(before)[at : at + 20], begin)

    assert store.told() == [("queue-entry-stale", path, begin, begin + 20)]


def test_a_queue_without_messages_in_the_log_is_stale(store: MadeStore) -> None:
    path = "consumequeue/Ghosts/3/00000000000000000000"

    store.write(path, store.read(store.queue_path("Orders", 0, 0)[0]))

    assert store.told() == [("queue-entry-stale", path, 0, 80)]


def test_a_flipped_filled_head_is_wrong() -> None:
    store = MadeStore(log_start=LOG_FILE_BYTES)
    store.next_offsets["Orders", 0] = 6
    store.fill()

    store.flip("consumequeue/Orders/0/00000000000000000080", 26)

    [finding] = store.findings()
    assert (finding.kind, finding.begin, finding.end) == (Kind.QUEUE_ENTRY_WRONG, 20, 40)
    assert "before the first message of the log" in finding.text


def test_a_missing_queue_file_is_reported_as_its_entries(store: MadeStore) -> None:
    path, _ = store.queue_path("Orders", 0, 4)

    store.unlink(path)

    assert store.told() == [("queue-missing", path, 0, 80)]


def test_a_queue_file_of_another_size_is_one_finding(store: MadeStore) -> None:
    path, _ = store.queue_path("Orders", 0, 4)

    store.truncate(path, 50)

    assert store.told() == [("queue-file-size", path, 0, 50)]


def test_a_missing_queue_is_one_finding(store: MadeStore) -> None:
    store.remove_tree("consumequeue/Orders/1")

    assert store.told() == [("queue-missing", "consumequeue/Orders/1", None, None)]


def test_without_any_queue_there_is_one_finding(store: MadeStore) -> None:
    store.remove_tree("consumequeue")

    [finding] = store.findings()
    assert (finding.kind, finding.path) == (Kind.QUEUE_MISSING, "consumequeue")


def test_a_missing_queue_of_an_unlisted_topic_is_a_note(store: MadeStore) -> None:
    store.remove_tree("consumequeue/Orders")
    store.write("config/topics.json", b'{"topicConfigTable":{"Bills":{}}}', size=33)

    assert store.told() == [
        ("queue-deleted", "consumequeue/Orders/0", None, None),
        ("queue-deleted", "consumequeue/Orders/1", None, None),
    ]


def test_a_recreated_topic_is_a_note() -> None:
    store = MadeStore()
    for _ in range(7):
        store.append("Orders")
    store.next_offsets["Orders", 0] = 0
    for _ in range(3):
        store.append("Orders")
    store.derive()

    assert store.told() == [("queue-deleted", "consumequeue/Orders/0", None, None)]


@pytest.mark.parametrize(
    ("field", "at"),
    [("begin ms", 7), ("end ms", 15), ("begin offset", 23), ("end offset", 31), ("slots", 35), ("count", 39)],
)
@pytest.mark.parametrize("bit", [0, 3])
def test_a_flipped_bit_in_an_index_header_is_reported_for_that_header(
    store: MadeStore, field: str, at: int, bit: int
) -> None:
    path = store.index_paths[1]

    store.flip(path, at, bit)

    assert store.told() == [("index-header", path, 0, 40)], field


def test_a_flipped_slot_of_the_index_is_reported_for_that_slot(store: MadeStore) -> None:
    path = store.index_paths[0]

    store.flip(path, 40 + 4 * 17 + 2)

    assert store.told() == [("index-slot", path, 40 + 4 * 17, 40 + 4 * 18)]


@pytest.mark.parametrize(("field", "at"), [("hash", 1), ("log offset", 10), ("second", 15), ("previous", 19)])
@pytest.mark.parametrize("number", [1, 2, 13, INDEX_ENTRIES - 1])
def test_a_flipped_bit_in_an_index_entry_is_reported_for_that_entry(
    store: MadeStore, field: str, at: int, number: int
) -> None:
    path, begin = store.index_paths[1], ENTRIES_AT + 20 * number

    store.flip(path, begin + at, bit=4)

    assert store.told() == [("index-entry", path, begin, begin + 20)], field


def test_swapped_index_entries_are_one_finding(store: MadeStore) -> None:
    path, begin = store.index_paths[1], ENTRIES_AT + 20 * 9
    data = store.read(path)

    store.write(path, data[begin + 20 : begin + 40] + data[begin : begin + 20], begin)

    assert store.told() == [("index-entry", path, begin, begin + 40)]


def test_zeroed_index_entries_are_one_finding(store: MadeStore) -> None:
    path, begin = store.index_paths[1], ENTRIES_AT + 20 * 9

    store.write(path, bytes(100), begin)

    assert store.told() == [("index-entry", path, begin, begin + 100)]


def test_a_missing_middle_index_file_is_reported_as_its_keys(store: MadeStore) -> None:
    store.unlink(store.index_paths[1])

    [finding] = store.findings()
    assert finding.kind is Kind.INDEX_KEY_MISSING
    assert "are not in the index" in finding.text


def test_a_missing_newest_index_file_is_reported_if_the_checkpoint_covers_its_keys(store: MadeStore) -> None:
    store.unlink(store.index_paths[-1])

    [finding] = store.findings()
    assert (finding.kind, finding.severity) == (Kind.INDEX_KEY_MISSING, Severity.REPAIRABLE)


def test_without_any_index_there_is_one_finding(store: MadeStore) -> None:
    store.remove_tree("index")

    assert [finding.kind for finding in store.findings()] == [Kind.INDEX_KEY_MISSING]


def test_an_index_file_of_another_size_is_one_finding(store: MadeStore) -> None:
    path = store.index_paths[1]

    store.truncate(path, 300)

    assert store.told() == [("index-file-size", path, 0, 300)]


def test_an_index_of_unknown_shape_is_reported_as_unchecked(store: MadeStore) -> None:
    for path in store.index_paths:
        store.write(path, b"\x01" * 40)  # headers that lead nowhere

    findings = store.findings(KnownSizes())

    assert [finding.kind for finding in findings] == [Kind.INDEX_UNCHECKED]


def test_the_index_can_be_skipped(store: MadeStore) -> None:
    store.remove_tree("index")
    verification = Verification(store.files, store.layout(), with_index=False)

    assert [event for event in verification.run() if isinstance(event, Finding)] == []

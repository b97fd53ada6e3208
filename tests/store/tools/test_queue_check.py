"""Queues compared with the log: special cases. tests/store/tools/test_verify.py has common damage."""

import pytest
from tests.store.made_store import LOG_FILE_BYTES, MadeStore

from pocketmq.store.tools.findings import Kind


def store_of(*queue_ids: int) -> MadeStore:
    store = MadeStore()
    for queue_id in queue_ids:
        store.append("Orders", queue_id)
    return store.derive()


def test_a_wrong_offset_of_the_first_message_of_a_queue_is_reported() -> None:
    store = store_of(0, 0, 0)

    store.flip(store.log_path(0), 27, bit=2)

    [finding] = store.findings()
    assert finding.kind is Kind.LOG_ORDER
    assert finding.text.endswith("it says that it is message 4 of Orders/0, but it is message 0")


def test_a_record_moved_to_another_queue_is_one_finding() -> None:
    store = store_of(0, 0, 0, 1, 0, 1, 0)
    at = list(store.records)[4]

    store.flip(store.log_path(at), at + 15)

    [finding] = store.findings()
    assert (finding.kind, finding.begin) == (Kind.LOG_ORDER, at)
    assert finding.text.endswith("it says that it is message 3 of Orders/1, whose next message is 1")


def test_a_record_with_a_smaller_offset_of_another_queue_is_one_finding() -> None:
    store = store_of(0, 1, 1, 1, 0, 1)
    at = list(store.records)[4]

    store.flip(store.log_path(at), at + 15)

    [finding] = store.findings()
    assert finding.text.endswith("it says that it is message 1 of Orders/1, whose next message is 3")


def test_messages_missing_without_a_trace_are_reported_once() -> None:
    store = store_of(0, 0, 0, 0, 0, 0)
    path, _ = store.queue_path("Orders", 0, 4)
    store.write(path, bytes(80))
    records = list(store.records)
    for at in records[2:4]:  # they turn into messages of another queue that is whole
        raw = bytearray(store.records[at])
        raw[12:16] = (7).to_bytes(4, "big")
        raw[20:28] = (records.index(at) - 2).to_bytes(8, "big")
        store.write_log(at, bytes(raw))

    in_log = [finding for finding in store.findings() if finding.path.startswith("commitlog")]

    assert [(finding.kind, finding.begin) for finding in in_log] == [(Kind.LOG_ORDER, records[4])]


def test_a_queue_whose_first_message_moved_to_another_topic_lacks_it() -> None:
    store = store_of(0, 0, 0)

    store.write_log(0, store.records[0].replace(b"Orders", b"Orderz"))

    findings = {finding.kind: finding.text for finding in store.findings()}
    assert set(findings) == {Kind.LOG_GAP, Kind.LOG_CHANGED, Kind.QUEUE_DELETED}
    assert "it is message 1 of Orders/0, but the log does not have message 0 of that queue" in findings[Kind.LOG_GAP]


def test_a_zeroed_filled_head_is_wrong() -> None:
    store = MadeStore(log_start=LOG_FILE_BYTES)
    store.next_offsets["Orders", 0] = 6
    store.append()
    store.derive()

    store.write("consumequeue/Orders/0/00000000000000000080", bytes(20), 20)

    [finding] = store.findings()
    assert (finding.kind, finding.begin, finding.end) == (Kind.QUEUE_ENTRY_WRONG, 20, 40)
    assert finding.text.endswith("and the file has nothing")


def test_a_truncated_file_with_expired_entries_is_one_finding() -> None:
    store = MadeStore().fill()
    store.unlink(store.log_path(0))

    store.truncate("consumequeue/Orders/0/00000000000000000000", 30)

    assert [finding.kind for finding in store.findings()] == [Kind.QUEUE_FILE_SIZE]


def test_a_queue_with_only_expired_messages_is_sound() -> None:
    store = MadeStore()
    store.append("Once")
    store.append("Once")
    store.fill()
    nothing = (0).to_bytes(8, "big") + (2**31 - 1).to_bytes(4, "big") + bytes(8)
    store.write("consumequeue/Once/0/00000000000000000000", nothing)

    store.unlink(store.log_path(0))

    assert store.findings() == []


def test_light_queues_are_reported_as_unchecked() -> None:
    store = store_of(0)
    store.write("consumequeue/%LMQ%light/0/00000000000000000000", b"\1" * 80)

    assert store.told() == [("queue-unchecked", "consumequeue/%LMQ%light/0", None, None)]


def test_queues_of_batches_are_reported_as_unchecked() -> None:
    store = MadeStore()
    store.append("Orders")
    store.append("Batches", sys_flag=0x80)
    store.derive()
    store.write("consumequeue/Batches/0/00000000000000000000", b"\1" * 80)

    assert store.told() == [("queue-unchecked", "consumequeue/Batches/0", None, None)]


@pytest.mark.parametrize("queue_id", [-1, -(2**31)])
def test_a_queue_id_that_cannot_be_a_folder_is_a_note(queue_id: int) -> None:
    store = MadeStore()
    store.append("Orders", queue_id)
    del store.next_offsets["Orders", queue_id]
    store.append("Orders")
    store.derive()

    assert [finding.kind for finding in store.findings()] == [Kind.LOG_TOPIC]


def test_topics_that_cannot_be_folders_are_named_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pocketmq.store.tools.queue_check.MAX_UNPLACED", 2)
    store = MadeStore()
    for number in range(5):
        store.append(f"bad name {number}", 0)
    store.next_offsets.clear()
    store.derive()

    assert [finding.kind for finding in store.findings()] == [Kind.LOG_TOPIC] * 2

"""Dumps: Apache's messages are dumped as its own client read them; damage does not end a dump."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from tests.golden import GOLDEN, needs_golden
from tests.store.golden_store import STORES, restore
from tests.store.made_store import LOG_FILE_BYTES, ROOT, MadeStore

from pocketmq.codes import SysFlag
from pocketmq.errors import InvalidName, StoreError
from pocketmq.files import DiskFiles
from pocketmq.model.message import StoredMessage
from pocketmq.store.layout import KnownSizes, find_layout
from pocketmq.store.tools.dump import Order, Selection, Skipped, dump
from pocketmq.store.tools.message_fields import BodyForm, fields_of


@pytest.fixture
def store() -> MadeStore:
    return MadeStore().fill()


def offsets(store: MadeStore, order: Order = Order.LOG, **selection: Any) -> list[int]:
    """Log offsets of the dumped messages; nothing may be skipped."""
    return [message.log_offset for message in messages(store, order, **selection)]


def messages(store: MadeStore, order: Order = Order.LOG, **selection: Any) -> list[StoredMessage]:
    found = list(dump(store.files, store.layout(), order, Selection(**selection)))
    assert [item for item in found if isinstance(item, Skipped)] == []
    return [item for item in found if isinstance(item, StoredMessage)]


def skipped(store: MadeStore, order: Order, **selection: Any) -> list[str]:
    found = dump(store.files, store.layout(), order, Selection(**selection))
    return [item.text for item in found if isinstance(item, Skipped)]


# the real broker's stores


@needs_golden
@pytest.mark.parametrize(("version", "kind"), STORES)
@pytest.mark.parametrize("order", list(Order))
def test_every_message_equals_what_javas_client_read(version: str, kind: str, order: Order, tmp_path: Path) -> None:
    restore(version, kind, tmp_path)
    expected = json.loads((GOLDEN / "store" / version / "expected.json").read_text())
    files = DiskFiles()

    dumped = list(dump(files, find_layout(files, tmp_path, KnownSizes()), order, Selection()))

    found = {
        (message.topic, message.queue_id, message.queue_offset): message
        for message in dumped
        if isinstance(message, StoredMessage) and not message.sys_flag & SysFlag.TRANSACTION_PREPARED
    }
    assert len(found) == len(dumped)
    wanted = {(row["topic"], row["queueId"], row["queueOffset"]): row for row in expected}
    missing = wanted.keys() - found.keys()
    log_end = max(message.log_offset + message.size for message in found.values())
    # The copy of a running broker was made before its last deliveries, and lacks exactly those.
    assert kind == "live" or not missing
    assert all(wanted[place]["commitLogOffset"] >= log_end for place in missing)
    for place in wanted.keys() & found.keys():
        # Whether a client reports that it has decompressed the body depends on its release.
        wanted[place]["sysFlag"] &= ~SysFlag.COMPRESSED
        assert as_java_read_it(found[place]) == wanted[place]


def as_java_read_it(message: StoredMessage) -> dict[str, Any]:
    fields = fields_of(message, BodyForm.BASE64)
    body = base64.b64decode(fields["body"])
    return {
        "topic": fields["topic"],
        "queueId": fields["queue"],
        "queueOffset": fields["queue_offset"],
        "commitLogOffset": fields["log_offset"],
        "storeSize": fields["size"],
        "msgId": fields["message_id"],
        "offsetMsgId": fields["offset_id"],
        "tags": fields["tags"],
        "keys": " ".join(fields["keys"]) or None,
        "flag": fields["flag"],
        "sysFlag": fields["sys_flag"] & ~SysFlag.COMPRESSED,
        "bodyCRC": fields["body_crc"],
        "reconsumeTimes": fields["reconsume_times"],
        "preparedTransactionOffset": fields["prepared_offset"],
        "bornTimestamp": fields["born_ms"],
        "bornHost": fields["born_host"],
        "storeTimestamp": fields["store_ms"],
        "storeHost": fields["store_host"],
        "bodyLength": len(body),
        "bodySha256": hashlib.sha256(body).hexdigest(),
        "properties": fields["properties"],
    }


# order and selection


def test_log_order_returns_all_messages_of_the_log(store: MadeStore) -> None:
    assert offsets(store) == list(store.records)


def test_queue_order_returns_queue_by_queue_without_half_messages(store: MadeStore) -> None:
    found = [(message.topic, message.queue_id, message.queue_offset) for message in messages(store, Order.QUEUE)]

    assert found == sorted(found)
    assert len(found) == sum(store.next_offsets.values())


def test_a_topic_and_one_of_its_queues_can_be_selected(store: MadeStore) -> None:
    of_topic = messages(store, Order.QUEUE, topic="Orders")
    of_queue = messages(store, Order.QUEUE, topic="Orders", queue_id=1)

    assert [message.queue_id for message in of_topic] == [0] * 15 + [1] * 15
    assert [message.queue_offset for message in of_queue] == list(range(15))
    assert offsets(store, Order.LOG, topic="Orders", queue_id=1) == [message.log_offset for message in of_queue]


def test_a_dump_can_be_limited_by_offsets(store: MadeStore) -> None:
    all_offsets = list(store.records)

    assert offsets(store, begin=all_offsets[4], end=all_offsets[7]) == all_offsets[4:7]
    assert offsets(store, begin=all_offsets[4] + 1, end=all_offsets[7]) == all_offsets[5:7]
    assert offsets(store, begin=all_offsets[-1]) == all_offsets[-1:]
    in_queue = messages(store, Order.QUEUE, topic="Orders", queue_id=0, begin=3, end=9)
    assert [message.queue_offset for message in in_queue] == list(range(3, 9))


def test_messages_are_selected_by_key_unique_key_and_tag(store: MadeStore) -> None:
    first = next(iter(store.records))

    assert len(messages(store, key="all")) == 30
    assert len(messages(store, key="k17")) == 1
    assert offsets(store, key=f"7F000001{first:024X}") == [first]
    assert len(messages(store, tag="tag1")) == 10
    assert messages(store, tag="tag") == []


def test_a_topic_without_queue_files_is_an_error_with_advice(store: MadeStore) -> None:
    with pytest.raises(StoreError, match=r"no queue files of Nothing/2 in .*dump in log order, or rebuild"):
        messages(store, Order.QUEUE, topic="Nothing", queue_id=2)


def test_a_topic_name_never_leaves_the_folder(store: MadeStore) -> None:
    with pytest.raises(InvalidName):
        messages(store, Order.QUEUE, topic="../commitlog")


# damage


def test_log_order_continues_after_damage(store: MadeStore) -> None:
    at, following = list(store.records)[5:7]
    store.flip(store.log_path(at), at + 4)

    found = list(dump(store.files, store.layout(), Order.LOG, Selection()))

    assert [item.log_offset for item in found if isinstance(item, StoredMessage)] == [
        offset for offset in store.records if offset != at
    ]
    [skip] = [item for item in found if isinstance(item, Skipped)]
    assert f"no valid record from log offset {at} to {following}" in skip.text


def test_damage_before_the_requested_offsets_is_not_reported(store: MadeStore) -> None:
    at, following = list(store.records)[5:7]
    store.flip(store.log_path(at), at + 4)

    assert skipped(store, Order.LOG, begin=following) == []


def test_queue_order_continues_after_an_unreadable_record(store: MadeStore) -> None:
    path, begin = store.queue_path("Orders", 0, 2)
    at = int.from_bytes(store.read(path)[begin : begin + 8], "big")
    store.flip(store.log_path(at), at + 90)

    [text] = skipped(store, Order.QUEUE, topic="Orders", queue_id=0)

    assert text.startswith(f"message 2 of Orders/0, at log offset {at}, cannot be read: ")


def test_an_entry_that_points_to_another_message_is_reported(store: MadeStore) -> None:
    path, begin = store.queue_path("Orders", 0, 2)
    other_path, other_begin = store.queue_path("Orders", 1, 2)
    store.write(path, store.read(other_path)[other_begin : other_begin + 20], begin)

    [text] = skipped(store, Order.QUEUE, topic="Orders", queue_id=0)

    assert text.endswith("is missing: the record there is of another message")


def test_missing_entries_are_reported_and_later_ones_follow(store: MadeStore) -> None:
    store.unlink(store.queue_path("Orders", 0, 4)[0])
    path, begin = store.queue_path("Orders", 0, 9)
    store.write(path, bytes(40), begin)

    found = list(dump(store.files, store.layout(), Order.QUEUE, Selection(topic="Orders", queue_id=0)))

    kept = [item.queue_offset for item in found if isinstance(item, StoredMessage)]
    assert kept == [0, 1, 2, 3, 8, 11, 12, 13, 14]
    assert [item.text for item in found if isinstance(item, Skipped)] == [
        "entries 4 to 7 of Orders/0 are missing",
        "entries 9 to 10 of Orders/0 are missing",
    ]


def test_entries_of_expired_messages_and_filled_heads_are_skipped() -> None:
    store = MadeStore(log_start=LOG_FILE_BYTES)
    store.next_offsets["Orders", 0] = 6
    store.fill()
    store.unlink(store.log_path(LOG_FILE_BYTES))

    found = messages(store, Order.QUEUE, topic="Orders", queue_id=0)

    assert found
    assert found[0].log_offset >= 2 * LOG_FILE_BYTES
    assert [message.queue_offset for message in found] == list(range(found[0].queue_offset, 21))


def test_a_store_without_queues_can_be_dumped_in_log_order(store: MadeStore) -> None:
    store.remove_tree("consumequeue")

    assert offsets(store) == list(store.records)
    with pytest.raises(StoreError, match="no queue files of any topic"):
        messages(store, Order.QUEUE)


def test_files_that_are_not_queue_files_are_skipped(store: MadeStore) -> None:
    store.write("consumequeue/file", b"x")
    store.write("consumequeue/Orders/7", b"x")
    store.files.make_dir(ROOT / "consumequeue/Orders/00")

    assert len(messages(store, Order.QUEUE)) == sum(store.next_offsets.values())

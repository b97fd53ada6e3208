"""Drafts: copies of stored messages that can be changed, and the ids of their offsets."""

from tests.store.open_store import OpenStore

from pocketmq.broker.messages import Draft, StoredPosition
from pocketmq.codes import SysFlag
from pocketmq.model.properties import parse_properties
from pocketmq.protocol.record import decode_record, encode_record

HOST_V6 = bytes(15) + b"\x01" + b"\x00\x00\x2a\x9f"
HOST = bytes((10, 0, 0, 1, 0, 0, 0x2A, 0x9F))


def test_a_draft_of_a_stored_message_has_all_its_fields() -> None:
    record = encode_record(
        b"Orders",
        3,
        42,
        1000,
        b"body",
        b"TAGS\x01A\x02own\x01v\x02",
        7,
        SysFlag.BORN_HOST_V6,
        5,
        HOST_V6,
        6,
        HOST,
        2,
        99,
    )

    draft = Draft.of(decode_record(record))

    assert draft == Draft(
        topic="Orders",
        queue_id=3,
        body=b"body",
        properties={"TAGS": "A", "own": "v"},
        born_ms=5,
        born_host=HOST_V6,
        flag=7,
        sys_flag=SysFlag.BORN_HOST_V6,
        reconsume_times=2,
        prepared_offset=99,
        stored_before=True,
    )


def test_changing_a_draft_does_not_change_its_message() -> None:
    opened = OpenStore.small()
    (offset,) = opened.send(b"body", properties="A\x011\x02")
    message = opened.store.message(offset)
    assert message is not None

    draft = Draft.of(message)
    draft.properties["B"] = "2"
    draft.topic = "U"

    assert message.properties == {"A": "1"}
    assert message.topic == "T"


def test_packed_properties_equal_those_of_the_record() -> None:
    draft = Draft(topic="T", queue_id=0, body=b"", properties={"A": "1", "ключ": "значение"}, born_ms=0, born_host=HOST)

    assert parse_properties(draft.packed_properties().decode()) == draft.properties
    assert draft.packed_properties().endswith(b"\x02")


def test_a_log_position_gives_the_message_id_of_this_broker() -> None:
    place = StoredPosition(queue_id=3, queue_offset=42, log_offset=1234567)

    assert place.message_id(bytes((10, 0, 0, 2, 0, 0, 0x2A, 0x9F))) == "0A00000200002A9F000000000012D687"

"""Packed messages: added properties, validation, and unchanged parts."""

import pytest

from pocketmq.client.producer.outgoing import Packer, can_share_a_batch, traced_type
from pocketmq.client.received import RetryMessage
from pocketmq.client.settings import ProducerSettings
from pocketmq.codes import SysFlag
from pocketmq.errors import InvalidMessage
from pocketmq.model.message import Message
from pocketmq.model.message_id import UniqueIds
from pocketmq.model.names import TopicName
from pocketmq.model.properties import parse_properties
from pocketmq.protocol.batch import decode_batch
from pocketmq.protocol.trace_text import TracedType
from pocketmq.testing import FakeClock


def packer(**options: object) -> Packer:
    settings = ProducerSettings(**options)  # type: ignore[arg-type]
    return Packer(settings, UniqueIds(bytes(4), 1, 2), FakeClock())


def test_an_id_and_the_sync_option_are_added() -> None:
    out = packer().pack(Message("T", b"x", tags="A", properties={"a": "b"}))

    assert parse_properties(out.properties) == {"UNIQ_KEY": out.message_id, "WAIT": "true", "TAGS": "A", "a": "b"}
    assert (out.topic, out.body, out.sys_flag, out.count, out.size) == ("T", b"x", 0, 1, 1 + len(out.properties))
    assert (out.messages, out.message_ids) == ([out.message], [out.message_id])


def test_an_explicit_sync_option_is_kept() -> None:
    out = packer().pack(Message("T", b"x", wait_stored=False))

    assert parse_properties(out.properties)["WAIT"] == "false"


def test_a_separator_that_was_put_into_a_property_later_is_found() -> None:
    message = Message("T", b"x")
    message.properties["a"] = "b\x01c"

    with pytest.raises(InvalidMessage, match="contains 0x01 or 0x02"):
        packer().pack(message)


@pytest.mark.parametrize(("length", "fits"), [(32_666, True), (32_667, True), (32_668, False)])
def test_properties_have_a_limit_in_bytes(length: int, fits: bool) -> None:
    fixed = len("UNIQ_KEY\x01" + "0" * 32 + "\x02WAIT\x01true\x02" + "a\x01\x02")
    message = Message("T", b"x", properties={"a": "v" * (length + 100 - fixed)})

    if fits:
        packer().pack(message)
    else:
        with pytest.raises(InvalidMessage, match="have 32768 bytes, more than the limit of 32767"):
            packer().pack(message)


def test_a_batch_keeps_the_properties_of_its_messages_and_has_no_id_of_its_own() -> None:
    made = packer()
    members = [made.pack(Message("T", b"%d" % n, keys=f"k{n}", flag=n)) for n in range(3)]
    out = made.pack_batch(members)

    items = decode_batch(out.body)
    assert [(flag, body) for flag, body, _ in items] == [(0, b"0"), (1, b"1"), (2, b"2")]
    assert [parse_properties(text.decode())["KEYS"] for _, _, text in items] == ["k0", "k1", "k2"]
    assert out.message_ids == [member.message_id for member in members]
    assert (out.count, out.message.flag) == (3, 0)
    assert parse_properties(out.properties) == {"WAIT": "true"}


def test_a_retried_message_is_sent_unchanged() -> None:
    retry_message = RetryMessage(
        TopicName("%RETRY%g"), b"packed", 7, 0x301, {"UNIQ_KEY": "A" * 32, "DELAY": "4", "WAIT": "false"}, 2, 16
    )

    out = packer(namespace="NS").pack_retry(retry_message)

    assert (out.topic, out.body, out.message.flag, out.sys_flag) == ("%RETRY%g", b"packed", 7, 0x301)
    assert out.attempts == (2, 16)
    assert parse_properties(out.properties) == retry_message.properties


def test_a_half_message_has_its_mark_and_its_group() -> None:
    message = Message("T", b"x" * 5000)
    out = packer(group="PG", namespace="NS").pack_half(message)

    properties = parse_properties(out.properties)
    assert (properties["TRAN_MSG"], properties["PGROUP"], out.topic) == ("true", "NS%PG", "NS%T")
    assert out.sys_flag == SysFlag.TRANSACTION_PREPARED | 0x301
    assert out.message is message
    assert message.properties == {}


@pytest.mark.parametrize(
    ("message", "shared", "kind"),
    [
        (Message("T", b"x"), True, TracedType.NORMAL),
        (Message("T", b"x", tags="A"), True, TracedType.NORMAL),
        (Message("T", b"x", delay_level=1), False, TracedType.DELAYED),
        (Message("T", b"x", delay_ms=1), False, TracedType.DELAYED),
        (Message("T", b"x", deliver_at_ms=1), False, TracedType.DELAYED),
        (Message("%RETRY%g", b"x"), False, TracedType.NORMAL),
    ],
)
def test_delayed_and_retried_messages_are_sent_alone(message: Message, shared: bool, kind: TracedType) -> None:
    assert can_share_a_batch(message) is shared
    assert traced_type(packer().pack(message)) is kind

"""Rows in shared batches equal single messages: the same properties, an id for each, batches of the configured size."""

import pytest

from pocketmq.client.settings import ProducerSettings
from pocketmq.errors import InvalidMessage
from pocketmq.model.message_id import UniqueIds
from pocketmq.model.names import parse_topic
from pocketmq.model.properties import parse_properties
from pocketmq.protocol.batch import decode_batch
from pocketmq.spark.write.sink_batches import BatchPacker, PlainRows
from pocketmq.testing import FakeClock

pytestmark = pytest.mark.usefixtures("twin")
ORDERS = parse_topic("orders")


def packer(batch_bytes: int = 512 * 1024, namespace: str | None = None) -> BatchPacker:
    settings = ProducerSettings(name_servers=("any:9876",), group="sink", namespace=namespace)
    return BatchPacker(settings, UniqueIds(b"\x7f\x00\x00\x01", 1, 2), FakeClock(), batch_bytes)


def test_every_row_has_its_own_id_and_the_values_of_its_columns() -> None:
    rows = PlainRows(ORDERS, [b"a", b"b"], [{"own": "1", "TAGS": "t"}, {}], ["id-0", "id-1"])

    (out,) = packer().packed(rows)

    assert (out.topic, out.properties) == ("orders", "WAIT\x01true\x02")
    items = decode_batch(out.body)
    assert [(flag, body) for flag, body, _ in items] == [(0, b"a"), (0, b"b")]
    first, second = (parse_properties(text.decode()) for _, _, text in items)
    assert first.pop("UNIQ_KEY") != second.pop("UNIQ_KEY")
    assert first == {"WAIT": "true", "own": "1", "TAGS": "t", "sparkRowId": "id-0"}
    assert second == {"WAIT": "true", "sparkRowId": "id-1"}


def test_a_namespace_is_in_topic_and_properties() -> None:
    (out,) = packer(namespace="team").packed(PlainRows(ORDERS, [b"a", b"b"]))

    assert out.topic == "team%orders"
    assert out.properties == "WAIT\x01true\x02INSTANCE_ID\x01team\x02"
    assert parse_properties(decode_batch(out.body)[0][2].decode())["INSTANCE_ID"] == "team"


def test_a_batch_ends_at_its_size_limit() -> None:
    outs = list(packer(batch_bytes=900).packed(PlainRows(ORDERS, [b"x" * 400] * 5)))

    assert [len(decode_batch(out.body)) for out in outs] == [2, 2, 1]


class Ticking(FakeClock):
    """A millisecond passes from reading to reading."""

    def now_ms(self) -> int:
        self.advance_ms(1)
        return super().now_ms()


def test_ids_do_not_repeat_with_more_rows_than_fit_into_a_millisecond() -> None:
    settings = ProducerSettings(name_servers=("any:9876",), group="sink")
    many = BatchPacker(settings, UniqueIds(b"\x7f\x00\x00\x01", 1, 2), Ticking(), 512 * 1024)

    outs = list(many.packed(PlainRows(ORDERS, [b"x"] * 70_000)))

    properties = [text for out in outs for _, _, text in decode_batch(out.body)]
    assert len(set(properties)) == len(properties) == 70_000


def test_too_long_properties_are_reported() -> None:
    with pytest.raises(InvalidMessage, match="the limit is 32767"):
        list(packer().packed(PlainRows(ORDERS, [b"a", b"b"], [{}, {"own": "x" * 33_000}])))

"""Records for the decoder: regular ones, every irregular kind, and random ones."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from pocketmq.client.received import readable
from pocketmq.codes import Compression, SysFlag
from pocketmq.model.message import StoredMessage
from pocketmq.model.message_id import Host
from pocketmq.model.names import unwrap
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.compression import compress, with_compression
from pocketmq.protocol.record import encode_record, host_flags
from pocketmq.spark.schema import Name

QUEUE = MessageQueue("orders", "broker-a", 3)
V4 = Host.parse("10.0.0.1:41786").packed()
V6 = Host.parse("[2001:db8::7]:10911").packed()
BORN_MS = 1_794_732_142_205
STORE_MS = BORN_MS + 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def made(
    queue_offset: int = 0,
    body: bytes = b"hello",
    properties: bytes = b"",
    topic: str | bytes = "orders",
    sys_flag: int = 0,
    born_host: bytes = V4,
    store_host: bytes = V4,
    born_ms: int = BORN_MS,
    reconsume_times: int = 0,
) -> bytes:
    return encode_record(
        topic.encode() if isinstance(topic, str) else topic,
        QUEUE.queue_id,
        queue_offset,
        queue_offset * 300,
        body,
        properties,
        0,
        sys_flag | host_flags(born_host, store_host),
        born_ms,
        born_host,
        STORE_MS,
        store_host,
        reconsume_times,
    )


def compressed(queue_offset: int, body: bytes, kind: Compression = Compression.ZLIB) -> bytes:
    return made(queue_offset, compress(body, kind), sys_flag=with_compression(0, kind))


def row_of(
    message: StoredMessage, broker_name: str = QUEUE.broker_name, namespace: str | None = None
) -> dict[str, Any]:
    """The values of each column for a message, computed in plain Python."""
    message = readable(message, None)
    return {
        Name.TOPIC: unwrap(namespace, message.topic),
        Name.BROKER_NAME: broker_name,
        Name.QUEUE_ID: message.queue_id,
        Name.QUEUE_OFFSET: message.queue_offset,
        Name.MSG_ID: message.message_id,
        Name.KEYS: message.properties.get("KEYS"),
        Name.TAGS: message.properties.get("TAGS"),
        Name.VALUE: message.body,
        Name.PROPERTIES: list(message.properties.items()),
        Name.BORN_TIMESTAMP: EPOCH + timedelta(milliseconds=message.born_ms),
        Name.STORE_TIMESTAMP: EPOCH + timedelta(milliseconds=message.store_ms),
        Name.RECONSUME_TIMES: message.reconsume_times,
    }


_names = st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "a", "ab", "größe", ""])
_values = st.sampled_from(["", "x", "7F000001129C4E0E2F2A49F747F30000", "k1 k2", "wert ü", "\U0001f600"])
_plain = st.lists(st.tuples(_names, _values), max_size=6).map(
    lambda pairs: "\x02".join(f"{n}\x01{v}" for n, v in pairs)
)
_plain_texts = st.tuples(_plain, st.booleans()).map(lambda made: made[0] + "\x02" * made[1]).map(str.encode)
_wild_texts = st.lists(st.sampled_from([b"\x01", b"\x02", b"TAGS", b"a", b"\xff", "ü".encode(), b"\x00"]), max_size=8)

property_texts = _plain_texts | _wild_texts.map(b"".join)
"""Mostly as brokers write them, sometimes out of any shape."""


@st.composite
def record_runs(draw: st.DrawFn) -> list[bytes]:
    """Records as one queue might contain them, with offsets increasing by one; most are regular."""
    count = draw(st.integers(1, 12))
    return [_drawn(draw, offset) for offset in range(count)]


def _drawn(draw: st.DrawFn, offset: int) -> bytes:
    body = draw(st.binary(max_size=40))
    properties = draw(property_texts)
    topic = draw(st.sampled_from(["orders", "orders", "t", "x" * 127, "y" * 200, "größe"]))
    kind = draw(st.sampled_from(["usual"] * 6 + ["zlib", "lz4", "zstd", "born v6", "store v6", "both v6", "committed"]))
    hosts = {"born v6": (V6, V4), "store v6": (V4, V6), "both v6": (V6, V6)}.get(kind, (V4, V4))
    flag = SysFlag.TRANSACTION_COMMIT if kind == "committed" else 0
    if kind in ("zlib", "lz4", "zstd"):
        how = Compression[kind.upper()]
        body, flag = compress(body, how), with_compression(0, how)
    born_ms = draw(st.integers(-(10**12), 4 * 10**12))
    times = draw(st.integers(-(2**31), 2**31 - 1))
    return made(offset, body, properties, topic, flag, hosts[0], hosts[1], born_ms, times)

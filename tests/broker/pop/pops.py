"""What the tests of pops share: a client that pops and acknowledges as RocketMQ's do, with handles from the answer."""

from typing import Any, NamedTuple

from tests.broker.running import Client, RunningBroker

from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.model.message import StoredMessage
from pocketmq.protocol.api.messages import AckMessage, ChangeInvisibleTime, PopMessage
from pocketmq.protocol.command import Command
from pocketmq.protocol.pop import BatchAck, BatchAckEntry, Handle, encode_bits, flag_of, pop_retry_topic
from pocketmq.protocol.record import decode_records

GROUP = "G"
BROKER = "broker-a"


class Leased(NamedTuple):
    """A message and its handle. `topic` is the one that it is in."""

    message: StoredMessage
    topic: str
    handle: Handle

    @property
    def body(self) -> bytes:
        return self.message.body


async def with_messages(broker: RunningBroker, count: int = 4) -> Client:
    """A client of a broker with a topic of one queue, which has `count` messages."""
    broker.make_topic(queues=1)
    client = await broker.connect()
    for number in range(count):
        await client.sent(b"%d" % number)
    return client


def popping(
    topic: str = "T",
    *,
    group: str = GROUP,
    queue_id: int = -1,
    most: int = 32,
    invisible_ms: int = 60_000,
    poll_ms: int = 0,
    born_ms: int = 0,
    init_mode: int = 0,
    **more: Any,
) -> PopMessage:
    return PopMessage(group, topic, queue_id, most, invisible_ms, poll_ms, init_mode, born_ms, **more)


def leased(answer: Command, topic: str = "T", group: str = GROUP) -> list[Leased]:
    """The messages of an answer, with the handles that a Java client makes of them."""
    ext = answer.ext or {}
    starts = {}
    for entry in filter(None, ext.get("startOffsetInfo", "").split(";")):
        flag, queue_id, first = entry.split(" ")
        assert (flag, queue_id) not in starts, "the client refuses an entry that it has already"
        starts[flag, queue_id] = int(first)
    found: list[Leased] = []
    messages = decode_records(answer.body)
    offsets: dict[str, list[int]] = {}
    for entry in filter(None, ext.get("msgOffsetInfo", "").split(";")):
        flag, queue_id, listed = entry.split(" ")
        offsets[f"{flag}@{queue_id}"] = [int(offset) for offset in listed.split(",")]
    for message in messages:
        own = message.properties.get("POP_CK")
        if own is not None:
            handle = Handle.parse(own)
            real = pop_retry_topic(group, topic, v2=handle.flag == 2)
        else:
            real = topic
            start = starts[str(flag_of(topic)), str(message.queue_id)]
            times = int(ext["popTime"]), int(ext["invisibleTime"]), int(ext["reviveQid"])
            handle = Handle(start, *times, flag_of(topic), BROKER, message.queue_id, message.queue_offset)
        assert message.queue_offset in offsets[f"{handle.flag}@{message.queue_id}"]
        assert message.topic == topic
        found.append(Leased(message, real, handle))
    return found


async def pop(client: Client, topic: str = "T", **fields: Any) -> list[Leased]:
    """The messages that a pop returns; none if it finds none."""
    answer = await client.ask(RequestCode.POP_MESSAGE, popping(topic, **fields))
    assert answer.code in (ResponseCode.SUCCESS, ResponseCode.POLLING_TIMEOUT), (answer.code, answer.remark)
    return leased(answer, topic, fields.get("group", GROUP))


async def bodies(client: Client, topic: str = "T", **fields: Any) -> list[bytes]:
    return [one.body for one in await pop(client, topic, **fields)]


async def ack(client: Client, one: Leased, group: str = GROUP, **changes: Any) -> Command:
    header = AckMessage(group, one.topic, one.handle.queue_id, one.handle.text(), one.handle.offset)
    for name, value in changes.items():
        setattr(header, name, value)
    return await client.ask(RequestCode.ACK_MESSAGE, header)


def batch_of(leases: list[Leased], group: str = GROUP, topic: str = "T") -> BatchAck:
    entries: dict[tuple[Any, ...], list[int]] = {}
    for one in leases:
        entries.setdefault(one.handle[:-1], []).append(one.handle.offset)
    return BatchAck(
        BROKER,
        tuple(
            BatchAckEntry(group, topic, str(flag), start, queue_id, rq, pop_ms, it, encode_bits(start, offsets))
            for (start, pop_ms, it, rq, flag, _, queue_id), offsets in entries.items()
        ),
    )


async def ack_all(client: Client, leases: list[Leased], group: str = GROUP, topic: str = "T") -> Command:
    return await client.ask(RequestCode.BATCH_ACK_MESSAGE, body=batch_of(leases, group, topic).encode())


async def change(client: Client, one: Leased, invisible_ms: int, group: str = GROUP) -> Leased:
    """The lease of a message with its new handle."""
    header = ChangeInvisibleTime(
        group, one.topic, one.handle.queue_id, one.handle.text(), one.handle.offset, invisible_ms
    )
    answer = await client.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    ext = answer.ext or {}
    pop_ms, renewed_ms = int(ext["popTime"]), int(ext["invisibleTime"])
    return one._replace(handle=one.handle._replace(start=one.handle.offset, pop_ms=pop_ms, invisible_ms=renewed_ms))

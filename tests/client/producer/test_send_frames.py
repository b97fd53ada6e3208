"""Send requests from templates have the same bytes as encoded commands."""

from hypothesis import given
from hypothesis import strategies as some

from pocketmq.client.producer.outgoing import Outgoing
from pocketmq.client.producer.send_frames import MAX_TEMPLATES, SendFrames, code_of
from pocketmq.client.settings import ProducerSettings
from pocketmq.codes import RequestCode
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.command import decode_command, encode_command
from pocketmq.protocol.frames import split_frames

QUEUE = MessageQueue("T", "broker-a", 3)


def outgoing(
    body: bytes = b"x",
    properties: str = "UNIQ_KEY\x01A\x02",
    *,
    flag: int = 0,
    sys_flag: int = 0,
    topic: str = "T",
    is_batch: bool = False,
    is_reply: bool = False,
    attempts: tuple[int, int] | None = None,
) -> Outgoing:
    message = Message(topic, body, flag=flag)
    members = [Outgoing(message, topic, "A", b"x", "")] if is_batch else None
    return Outgoing(
        message, topic, "A", body, properties, sys_flag, members=members, is_reply=is_reply, attempts=attempts
    )


@given(
    body=some.binary(max_size=300),
    properties=some.text(max_size=80).map(lambda text: text.encode("utf-8", "replace").decode()),
    flag=some.integers(-(2**31), 2**31 - 1),
    sys_flag=some.integers(0, 2**31 - 1),
    number=some.integers(-(2**31), 2**31 - 1),
    born_ms=some.integers(0, 2**62),
    group=some.sampled_from(["PG", "a%b", "100%d", "%%"]),
    is_batch=some.booleans(),
    is_reply=some.booleans(),
)
def test_a_template_gives_the_same_bytes_as_the_encoder(
    body: bytes,
    properties: str,
    flag: int,
    sys_flag: int,
    number: int,
    born_ms: int,
    group: str,
    is_batch: bool,
    is_reply: bool,
) -> None:
    frames = SendFrames(ProducerSettings(group=group, unit_mode=is_reply))
    out = outgoing(body, properties, flag=flag, sys_flag=sys_flag, is_batch=is_batch, is_reply=is_reply)
    command = frames.command(out, QUEUE, born_ms)
    command.opaque = number

    for _ in range(2):
        assert frames.encode(out, QUEUE, born_ms, number) == encode_command(command)


def test_the_request_code_shows_the_kind_of_send() -> None:
    assert code_of(outgoing()) == RequestCode.SEND_MESSAGE_V2
    assert code_of(outgoing(is_batch=True)) == RequestCode.SEND_BATCH_MESSAGE
    assert code_of(outgoing(is_reply=True)) == RequestCode.SEND_REPLY_MESSAGE_V2


def test_a_retried_message_includes_its_attempts() -> None:
    command = SendFrames(ProducerSettings()).command(outgoing(attempts=(3, 16)), QUEUE, 1)

    assert command.ext is not None
    assert (command.ext["j"], command.ext["l"]) == ("3", "16")


def test_names_of_namespaces_and_brokers_are_kept_as_they_are() -> None:
    frames = SendFrames(ProducerSettings(group="PG", namespace="NS"))
    out = outgoing(topic="NS%T")

    (frame,) = split_frames(frames.encode(out, MessageQueue("NS%T", 'b"r%d', 1), 1, 7))
    command = decode_command(frame)

    assert command.ext is not None
    assert (command.ext["a"], command.ext["b"], command.ext["n"], command.opaque) == ("NS%PG", "NS%T", 'b"r%d', 7)


def test_the_number_of_templates_is_limited() -> None:
    frames = SendFrames(ProducerSettings())
    out = outgoing()

    for number in range(MAX_TEMPLATES + 10):
        frames.encode(out, MessageQueue("T", "b", number), 1, 1)

    assert len(frames._templates) == 10

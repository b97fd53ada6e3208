"""The messages that the benchmarks work through: as a Java client sends them, 100 bytes each, no two the same."""

from typing import NamedTuple

from pocketmq.codes import Language, RequestCode
from pocketmq.model.message_id import Host
from pocketmq.protocol.command import Command, encode_command
from pocketmq.protocol.record import encode_record

COUNT = 64
"""About what one read from the socket of a busy producer holds."""

BORN_HOST = Host.parse("10.0.0.1:41786").packed()
STORE_HOST = Host.parse("10.0.0.2:10911").packed()
TOPIC = "OrdersTopic"
NOW_MS = 1_794_732_142_205


class Sample(NamedTuple):
    number: int
    unique_id: str
    body: bytes
    properties: str


def _sample(number: int) -> Sample:
    unique_id = f"7F000001129C4E0E2F2A49F747F3{number:04X}"
    properties = f"KEYS\x01order{number}\x02UNIQ_KEY\x01{unique_id}\x02WAIT\x01true\x02TAGS\x01TagA\x02"
    return Sample(number, unique_id, b"%04d" % number * 25, properties)


SAMPLES = [_sample(number) for number in range(COUNT)]


def send_frame(sample: Sample) -> bytes:
    """A whole send request."""
    ext = {
        "a": "OrdersProducers",
        "b": TOPIC,
        "c": "TBW102",
        "d": "4",
        "e": str(sample.number % 4),
        "f": "0",
        "g": str(NOW_MS + sample.number),
        "h": "0",
        "i": sample.properties,
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "broker-a",
    }
    opaque = 1000 + sample.number
    return encode_command(Command(RequestCode.SEND_MESSAGE_V2, ext, sample.body, opaque=opaque, language=Language.JAVA))


def record(sample: Sample) -> bytes:
    """The same message as the log keeps it."""
    return encode_record(
        TOPIC.encode(),
        sample.number % 4,
        sample.number,
        sample.number * 300,
        sample.body,
        sample.properties.encode(),
        0,
        0,
        NOW_MS,
        BORN_HOST,
        NOW_MS + 1,
        STORE_HOST,
    )

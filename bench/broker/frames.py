"""Requests that are encoded once and sent a million times: only numbers of fixed width change in them.

… "opaque":1000000000 … UNIQ_KEY 7F00…00000000 …      encoded once
… "opaque":%(opaque)010d … UNIQ_KEY 7F00…%(id0)08X …  turned into a format, which Python fills in half a microsecond
"""

from pocketmq.codes import Language, RequestCode
from pocketmq.protocol.batch import encode_batch
from pocketmq.protocol.command import ONEWAY, Command, encode_command

FIRST_OPAQUE = 1_000_000_000
"""Ten digits, like all that follow; requests of the broker count from 0."""
LAST_OPAQUE = 2**31 - 1
GROUP = "bench_group"
_BORN = "1700000000000"
_ID = "7F00000112342A139A550000FFFFFFFF"
_ID_DIGITS = 8
_OFFSET = "900000000001"
TOPIC_NUMBER = "99999"
"""At the end of a topic's name: it is replaced by the number of the topic."""
_LETTERS = b"abcdefghijklmnopqrstuvwxyz"


def body_of(size: int) -> bytes:
    return (_LETTERS * (size // len(_LETTERS) + 1))[:size]


def send_format(topic: str, queue_id: int, queues: int, body_bytes: int, *, is_oneway: bool = False) -> bytes:
    """A send of one message. Numbers: opaque, born (milliseconds), id0."""
    ext = _send_fields(topic, queue_id, queues, _properties(), is_batch=False)
    return _format(RequestCode.SEND_MESSAGE_V2, ext, body_of(body_bytes), ONEWAY if is_oneway else 0)


def batch_format(topic: str, queue_id: int, queues: int, body_bytes: int, count: int) -> bytes:
    """A send of `count` messages. Numbers: opaque, born, and id0, id1 … for each of them."""
    item = (0, body_of(body_bytes), _properties().encode())
    ext = _send_fields(topic, queue_id, queues, "WAIT\x01true\x02", is_batch=True)
    return _format(RequestCode.SEND_BATCH_MESSAGE, ext, encode_batch([item] * count))


def pull_format(topic: str, queue_id: int, count: int) -> bytes:
    """A pull that does not wait and brings its subscription along. Numbers: opaque, offset."""
    ext = {
        "consumerGroup": GROUP,
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": _OFFSET,
        "maxMsgNums": str(count),
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "15000",
        "subVersion": "1",
        "expressionType": "TAG",
        "subscription": "*",
    }
    return _format(RequestCode.PULL_MESSAGE, ext)


def _properties() -> str:
    return f"UNIQ_KEY\x01{_ID}\x02WAIT\x01true\x02TAGS\x01TagA\x02"


def _send_fields(topic: str, queue_id: int, queues: int, properties: str, *, is_batch: bool) -> dict[str, str]:
    """What a Java producer sends."""
    return {
        "a": GROUP,
        "b": topic,
        "c": "TBW102",
        "d": str(queues),
        "e": str(queue_id),
        "f": "0",
        "g": _BORN,
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "true" if is_batch else "false",
        "n": "broker-a",
    }


def _format(code: int, ext: dict[str, str], body: bytes = b"", flag: int = 0) -> bytes:
    command = Command(code, ext, body, flag=flag, opaque=FIRST_OPAQUE, language=Language.JAVA)
    text = encode_command(command).replace(b"%", b"%%")
    text = text.replace(str(FIRST_OPAQUE).encode(), b"%(opaque)010d", 1)
    text = text.replace(TOPIC_NUMBER.encode(), b"%(topic)05d")
    text = text.replace(_BORN.encode(), b"%(born)013d").replace(_OFFSET.encode(), b"%(offset)012d")
    head, *tails = text.split(_ID.encode())
    stem = _ID[:-_ID_DIGITS].encode()
    return head + b"".join(b"%b%%(id%d)08X%b" % (stem, number, tail) for number, tail in enumerate(tails))

"""The messages that the stores are made of: a bit of everything that a record can hold.

Orders      4 queues, tags and keys; long enough for several files of log, queue and index when files are small
Words       texts of many alphabets in keys, tags and properties; no properties at all; an empty body
Packed      bodies compressed in each of the three ways
Bulk        bodies as large as a log file allows, up to 100 KB
Deals       a transaction that was committed, one that is prepared, one that was rolled back
Burst       many small ones in the last turn, so that the key index is behind when the store is closed
Late        nothing yet: two messages for it wait in the delay topic, one of them is due in seconds
"""

import random
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from pocketmq.clock import SystemClock
from pocketmq.codes import Compression, SysFlag
from pocketmq.model import properties as names
from pocketmq.model.delay import queue_of_level
from pocketmq.model.message_id import Host, UniqueIds
from pocketmq.model.names import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC
from pocketmq.model.properties import format_properties
from pocketmq.protocol.compression import compress, with_compression

GROUP: Final = "CG_conformance"
RETRY: Final = f"%RETRY%{GROUP}"
LONG_TOPIC: Final = "%RETRY%" + "group-with-a-very-long-name_" * 6
"""More than 127 bytes: its records have the second version of the layout, which 4.9 does not know."""
DUE_LEVEL: Final = 2
LONGEST_LEVEL: Final = 18
BURST: Final = 1_500

TOPICS: Final = {"Orders": 4, "Words": 1, "Packed": 1, "Bulk": 1, "Deals": 1, "Late": 1, "Burst": 2, RETRY: 1}
"""Topics of the sample, with their number of queues."""

_BORN_HOST: Final = Host.parse("127.0.0.1:50123").packed()
_BORN_HOST_V6: Final = Host.parse("[2001:db8::17]:50124").packed()
_UNIQUE_IDS: Final = UniqueIds(bytes((127, 0, 0, 1)), 4711, 0xC0FFEE)
_TEXTS: Final = ("übergröße", "Привет", "你好世界", "こんにちは", "مرحبا", "שלום", "🚀🛰️", "ﬀ\u00a0x", "a\u0301")


class Draft(NamedTuple):
    """A message before it is stored."""

    topic: str
    queue_id: int
    body: bytes
    properties: dict[str, str]
    flag: int = 0
    sys_flag: int = 0
    born_ms: int = 0
    born_host: bytes = _BORN_HOST
    reconsume_times: int = 0
    prepared_offset: int = 0

    @property
    def raw_properties(self) -> bytes:
        return format_properties(self.properties).encode()

    @property
    def enters_queue(self) -> bool:
        return not self.sys_flag & SysFlag.TRANSACTION_PREPARED


def draft(
    topic: str,
    queue_id: int,
    body: bytes,
    *,
    tags: str = "",
    keys: str = "",
    properties: Mapping[str, str] | None = None,
    flag: int = 0,
    sys_flag: int = 0,
    born_host: bytes = _BORN_HOST,
    reconsume_times: int = 0,
) -> Draft:
    """A message as a producer would send it: with a unique key, and with what is given."""
    given = {names.UNIQ_KEY: new_unique_key(), names.TAGS: tags, names.KEYS: keys, **(properties or {})}
    return Draft(
        topic,
        queue_id,
        body,
        {name: value for name, value in given.items() if value},
        flag,
        sys_flag,
        SystemClock().now_ms(),
        born_host,
        reconsume_times,
    )


def new_unique_key() -> str:
    return _UNIQUE_IDS.next(SystemClock().now_ms())


def noise(size: int, seed: int) -> bytes:
    """Bytes that no compression makes smaller, the same for the same seed."""
    return random.Random(seed).randbytes(size)


def sample(version: str, largest_body: int) -> list[Draft]:
    """All messages of a fresh store, in the order in which they are written."""
    drafts = [*_orders(200), *_words(), *_packed(), *_bulk(largest_body), *_late(), *_deals(version), *_retries()]
    if not version.startswith("4."):
        drafts.append(draft(LONG_TOPIC, 0, b"a topic of more than 127 bytes", keys="long"))
    # More of the first kind, so that the others have something behind them in the log.
    return [*drafts, *_orders(40, first=200)]


def burst() -> list[Draft]:
    """What is written in one turn, just before the store is closed."""
    return [draft("Burst", number % 2, b"x", keys=f"burst{number} of{number % 100}") for number in range(BURST)]


def topics_for(version: str) -> dict[str, int]:
    """Topics of the sample with their number of queues."""
    return TOPICS if version.startswith("4.") else {**TOPICS, LONG_TOPIC: 1}


def _orders(count: int, first: int = 0) -> Iterator[Draft]:
    for number in range(first, first + count):
        yield draft(
            "Orders",
            (0, 1, 0, 2, 0, 3)[number % 6],
            f"order {number} ".encode() * (number % 17 + 1),
            tags="TagA" if number % 3 == 0 else "TagB",
            keys=f"order{number} customer{number % 50}",
            flag=number,
            properties={"n": str(number)},
        )


def _words() -> Iterator[Draft]:
    for number, text in enumerate(_TEXTS):
        yield draft(
            "Words",
            0,
            text.encode(),
            tags=f"tag-{text}",
            keys=f"key{number}",
            properties={f"name-{text}": text * 3, "x": "=;,{}\"'"},
        )
    yield draft("Words", 0, "ключ 中文".encode(), keys="ключ 中文")
    yield Draft("Words", 0, b"no properties at all", {}, born_ms=SystemClock().now_ms())
    yield Draft("Words", 0, b"", {names.UNIQ_KEY: new_unique_key()}, born_ms=SystemClock().now_ms())
    yield draft("Words", 0, bytes(range(256)), tags="Bytes", born_host=_BORN_HOST_V6)
    yield draft("Words", 0, b"many properties", properties={f"p{number}": "v" * 100 for number in range(80)})


def _packed() -> Iterator[Draft]:
    plain = b"compress me, please; " * 400
    for kind in Compression:
        yield draft(
            "Packed", 0, compress(plain, kind), tags=kind.name, keys=kind.name, sys_flag=with_compression(0, kind)
        )


def _bulk(largest_body: int) -> Iterator[Draft]:
    for number in range(12):
        yield draft("Bulk", 0, noise(largest_body - 97 * number, number), tags="Noise", keys=f"bulk{number}")


def _late() -> Iterator[Draft]:
    for level in (LONGEST_LEVEL, DUE_LEVEL):
        waiting = {names.DELAY: str(level), names.REAL_TOPIC: "Late", names.REAL_QUEUE_ID: "0"}
        yield draft(
            SCHEDULE_TOPIC,
            queue_of_level(level),
            f"late {level}".encode(),
            tags="Late",
            keys=f"late{level}",
            properties=waiting,
        )


def _deals(version: str) -> Iterator[Draft]:
    """A half message, what says that it is done, and its committed twin; then two that were written directly."""
    half = draft(
        HALF_TOPIC,
        0,
        b"deal done",
        tags="Deal",
        keys="deal",
        properties={
            names.TRANSACTION_PREPARED: "true",
            names.PRODUCER_GROUP: "PG_conformance",
            names.REAL_TOPIC: "Deals",
            names.REAL_QUEUE_ID: "0",
        },
    )
    yield half
    yield half._replace(topic="Deals", sys_flag=SysFlag.TRANSACTION_COMMIT, prepared_offset=1)
    done = b"0" if version.startswith("4.") else b"0,"
    yield Draft(OP_HALF_TOPIC, 0, done, {names.TAGS: "d"}, born_ms=SystemClock().now_ms())
    yield draft("Deals", 0, b"prepared", keys="prepared", sys_flag=SysFlag.TRANSACTION_PREPARED)
    yield draft("Deals", 0, b"rolled back", keys="rolledBack", sys_flag=SysFlag.TRANSACTION_ROLLBACK)
    yield draft("Deals", 0, b"after both", keys="after")


def _retries() -> Iterator[Draft]:
    origin = {names.RETRY_TOPIC: "Orders", names.ORIGIN_MESSAGE_ID: "7F00000100002A9F0000000000000000"}
    yield draft(RETRY, 0, b"third attempt", tags="TagA", keys="retried", reconsume_times=3, properties=origin)

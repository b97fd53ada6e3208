"""Both twins in the same broker: for any input in any segments, they store and answer the same bytes."""

import asyncio
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.broker.running import RunningBroker, running, settled
from tests.compiled.requests import USUAL, streams
from tests.twins import BOTH, compiled_or_skip, using

from pocketmq.broker.handlers.sending import Sending
from pocketmq.model.message_id import UniqueIds
from pocketmq.protocol.batch import encode_batch
from pocketmq.protocol.frames import join_frame
from pocketmq.store.settings import FlushMode
from pocketmq.testing import run

KINDS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "synced": {"flush": FlushMode.SYNC},
    "from a pool": {"transient_pool": True},
    "small files": {"log_file_bytes": 16 * 1024, "prepared_files": 20},
}
EXAMPLES = {"thorough": 100, "short": 5}.get(settings.get_current_profile_name(), 20)


class Wire(asyncio.Protocol):
    """A client that sends any bytes, and keeps the answers."""

    def __init__(self) -> None:
        self.heard = b""
        self.ended = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True


def without_chance(broker: RunningBroker) -> None:
    """Nothing that both would choose differently."""
    broker.parts.sending._unique_ids = UniqueIds(bytes(4), 1, 1)
    broker.parts.sending._destinations._random = random.Random(0)


def kept(broker: RunningBroker) -> dict[str, object]:
    """All state of a broker after the sends."""
    store = broker.store
    log, queues = store._log, store._queues
    tallies = [broker.parts.state.stats.sent(topic) for topic in ("T", "U", "New")]
    return {
        "records": [bytes(log.view(at, size)) for at, size in stretches(log.start, log.written, store._file_bytes)],
        "entries": {queue.key: queue.read(0, queue.max_offset) for queue in queues},
        "next offsets": {queue.key: queue.next_offset for queue in queues},
        "counted": [(tally.count, tally.joined, tally.bytes) for tally in tallies],
        "taken": store._parts.messages_accepted,
        "failed": broker.parts.state.stats.failed_puts,
    }


def stretches(start: int, end: int, file_bytes: int) -> list[tuple[int, int]]:
    """The records in each file, as offset and size."""
    firsts = range(start - start % file_bytes, end, file_bytes)
    return [(max(start, first), min(end, first + file_bytes) - max(start, first)) for first in firsts]


async def conversation(pieces: list[bytes], **store: Any) -> dict[str, object]:
    async with running(store=store) as broker:
        without_chance(broker)
        broker.make_topic("T")
        broker.make_topic("U", 2)
        wire = await broker.network.at("10.1.0.1").connect(Wire, broker.broker.address)
        for piece in pieces:
            if not wire.ended:
                wire.transport.write(piece)
            await settled()
        await asyncio.sleep(0.2)  # syncs, and what is done behind the answers
        return {"heard": wire.heard, "ended": wire.ended, **kept(broker)}


def said_by(name: str, pieces: list[bytes], **store: Any) -> dict[str, object]:
    with using(name):
        return run(conversation(pieces, **store))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(pieces=streams())
def test_both_implementations_store_and_answer_the_same(kind: str, pieces: list[bytes]) -> None:
    compiled_or_skip()

    python, compiled = (said_by(name, pieces, **KINDS[kind]) for name in BOTH)

    assert compiled == python


def usual_send(number: int, queue_id: int, body: bytes, topic: str = "T") -> bytes:
    return _request(310, number, queue_id, USUAL.replace("00A1", f"{number:04X}"), body, topic)


def usual_batch(number: int, queue_id: int, sizes: list[int], properties: str = "WAIT\x01true\x02") -> bytes:
    body = encode_batch((0, bytes(size), f"UNIQ_KEY\x01{number}-{size}\x02TAGS\x01A".encode()) for size in sizes)
    return _request(320, number, queue_id, properties, body)


def _request(code: int, number: int, queue_id: int, properties: str, body: bytes, topic: str = "T") -> bytes:
    escaped = properties.replace("\x01", "\\u0001").replace("\x02", "\\u0002")
    ext = (
        f'"a":"PG","b":"{topic}","c":"TBW102","d":"4","e":"{queue_id}","f":"0","g":"1700000000123","h":"0",'
        f'"i":"{escaped}","j":"0","k":"false","m":"false","n":"broker-a"'
    )
    header = f'{{"code":{code},"extFields":{{{ext}}},"flag":0,"language":"JAVA","opaque":{number},"version":479}}'
    return join_frame(0, header.encode(), body)


@settings(max_examples=EXAMPLES // 2, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 2000)), min_size=60, max_size=150),
    st.lists(st.integers(0, 4000), max_size=6),
)
def test_long_turns_across_log_files_are_the_same(sends: list[tuple[int, int]], cuts: list[int]) -> None:
    compiled_or_skip()
    first = usual_send(0, 0, b"the queues are known from here on")
    data = b"".join(usual_send(number, queue, bytes(size)) for number, (queue, size) in enumerate(sends))
    cuts = sorted(cuts)
    pieces = [first, *(data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True))]

    python, compiled = (said_by(name, pieces, **KINDS["small files"]) for name in BOTH)

    assert compiled == python


BATCH_PROPERTIES = (
    "WAIT\x01true\x02",
    "WAIT\x01true",
    "UNIQ_KEY\x01a\x02UNIQ_KEY\x01b",
    "UNIQ_KEY\x01c\x02",
    "DELAY\x011",
    "",
    "X\x01UNIQ_KEY",
)


@pytest.mark.parametrize("kind", ["small files", "synced"])
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(0, 3), st.lists(st.integers(0, 900), max_size=8), st.sampled_from(BATCH_PROPERTIES)),
            st.tuples(st.integers(0, 3), st.lists(st.integers(1, 900), min_size=1, max_size=8)),
        ),
        min_size=5,
        max_size=40,
    )
)
def test_batches_are_stored_completely_or_not_at_all_by_both(kind: str, batches: list[Any]) -> None:
    compiled_or_skip()
    known = b"".join(usual_send(number, number, b"the queues are known from here on") for number in range(4))
    sent = [usual_batch(number, *batch) for number, batch in enumerate(batches)]

    python, compiled = (said_by(name, [known, b"".join(sent), known], **KINDS[kind]) for name in BOTH)

    assert compiled == python


def test_regular_sends_of_one_read_are_encoded_by_one_call_of_the_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    twin = compiled_or_skip()
    taken: list[int] = []
    stage_run = Sending.stage_run

    def noted(*args: Any) -> tuple[int, bytes, bool]:
        result = stage_run(*args)
        taken.append(result[0])
        return result

    monkeypatch.setattr(Sending, "stage_run", noted)

    async def talk() -> int:
        async with running() as broker:
            broker.make_topic("T")
            wire = await broker.network.at("10.1.0.1").connect(Wire, broker.broker.address)
            wire.transport.write(b"".join(usual_send(number, number % 4, b"body") for number in range(4)))
            await settled()
            wire.transport.write(b"".join(usual_send(number, number % 4, b"body") for number in range(40)))
            await settled()
            wire.transport.write(
                b"".join(usual_batch(number, 3, [9, 9]) for number in range(4)) + usual_send(9, 0, b"body")
            )
            await settled()
            return len(broker.bodies("T", 3))

    with using("compiled"):
        assert twin is not None
        stored = run(talk())

    assert taken == [0, 0, 0, 0, 40, 5], "a queue is not known before it was sent to"
    assert stored == 11 + 8

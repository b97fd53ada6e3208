"""The C twin releases all memory that it takes, whether a call succeeds, is declined or is an error."""

import gc
import struct
import tracemalloc
from array import array
from collections.abc import Callable
from contextlib import suppress

import pytest
from tests.compiled.test_same_turns import usual_send
from tests.compiled.test_turn import (
    BORN_MS,
    HOST,
    PARTS,
    PREFIX,
    STORE_MS,
    SUFFIX,
    batch_frame,
    new_queue,
    send_queue_of,
)
from tests.twins import compiled_or_skip

from pocketmq import compiled
from pocketmq.protocol.batch import encode_batch
from pocketmq.protocol.frames import split_frames
from pocketmq.protocol.record import encode_record
from pocketmq.store.index.growing_index_file import KEY_BYTES

ROUNDS = 1000
SLACK_BYTES = 16_384
"""What tracemalloc itself, the interpreter's free lists and servers of other tests may account for: half of what the smallest
object would be, left behind once a round."""


@pytest.fixture(scope="module")
def turn() -> compiled.Twin:
    return compiled_or_skip()


def grown_bytes(work: Callable[[], object]) -> int:
    """The growth of memory after many rounds. Other code may keep something once, so a growth above the slack is
    measured again.
    """
    tracemalloc.start()
    try:
        tries = (_grown_once(work) for _ in range(6))
        return next((grown for grown in tries if grown < SLACK_BYTES), SLACK_BYTES)
    finally:
        tracemalloc.stop()


def _grown_once(work: Callable[[], object]) -> int:
    work()
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(ROUNDS):
        work()
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    return after - before


def test_sends_leak_no_memory(turn: compiled.Twin) -> None:
    queues = [new_queue() for _ in range(4)]
    send_queues = {b"T/%d" % number: send_queue_of(queue) for number, queue in enumerate(queues)}
    data = b"".join(usual_send(number, number % 5, bytes(100)) for number in range(20))
    frames = split_frames(data)
    plan = SUFFIX, PARTS, PREFIX, HOST, 1000, False

    def work() -> None:
        for at in (0, 4, 5):  # queue 4 is not known: declined after some, and at once
            turn.lay_out_sends(frames, at, 64, send_queues, plan, HOST, STORE_MS, 0, 1_000_000, 64, bytes)
        with suppress(TypeError):
            turn.lay_out_sends([*frames[:2], None], 0, 64, send_queues, plan, HOST, STORE_MS, 0, 1_000_000, 64, bytes)  # type: ignore[list-item]

    run = turn.lay_out_sends(frames, 0, 64, send_queues, plan, HOST, STORE_MS, 0, 1_000_000, 64, bytes)
    assert run is not None
    assert run[0] == 4
    assert grown_bytes(work) < SLACK_BYTES


def test_batches_leak_no_memory(turn: compiled.Twin) -> None:
    send_queues = {b"T/3": send_queue_of(new_queue())}
    whole = encode_batch((0, bytes(100), b"TAGS\x01A") for _ in range(32))
    plan = SUFFIX, PARTS, PREFIX, HOST, 10_000, False

    def work() -> None:
        for body in (whole, whole[:-1], b""):
            frames = [batch_frame(body, "T", 0)]
            turn.lay_out_sends(frames, 0, 64, send_queues, plan, HOST, STORE_MS, 0, 1_000_000, 64, bytes)

    assert grown_bytes(work) < SLACK_BYTES


def test_frames_and_keys_leak_no_memory(turn: compiled.Twin) -> None:
    data = b"".join(usual_send(number, 0, bytes(100)) for number in range(20))
    run = turn.lay_out_sends(
        split_frames(data),
        0,
        64,
        {b"T/0": send_queue_of(new_queue())},
        (SUFFIX, PARTS, PREFIX, HOST, 1000, False),
        HOST,
        STORE_MS,
        0,
        1_000_000,
        64,
        bytes,
    )
    assert run is not None

    def work() -> None:
        turn.split_whole(data, 1 << 20, 1 << 20, 1)
        keys, _, _ = turn.read_keys(run[1], 0, 0, 64)
        turn.enter_keys(keys, 0, pages, bytearray(2), 2048, 1, 0)
        with suppress(TypeError):
            turn.read_keys("no bytes", 0, 0, 64)  # type: ignore[arg-type]

    pages = [array("i", [0] * 1024), None]
    assert len(turn.read_keys(run[1], 0, 0, 64)[0]) == 20 * KEY_BYTES
    assert grown_bytes(work) < SLACK_BYTES


def test_columns_leak_no_memory(turn: compiled.Twin) -> None:
    texts = [b"KEYS\x01k\x02TAGS\x01t\x02", b"own\x01" + bytes([200]), b"UNIQ_KEY\x01u\x02TAGS\x01t"]
    names = (b"UNIQ_KEY", b"TAGS")
    record = encode_record(b"T", 0, 0, 0, b"body", b"TAGS\x01t\x02", 0, 0, BORN_MS, HOST, STORE_MS, HOST)
    assert turn.read_columns(record * 3, 0, 9, 0, 15, names) is not None

    def ranges(rows: list[bytes]) -> tuple[bytes, bytes, bytes]:
        ends = [sum(map(len, rows[: at + 1])) for at in range(len(rows))]
        starts = [end - len(row) for end, row in zip(ends, rows, strict=True)]
        return b"".join(rows), struct.pack(f"={len(rows)}q", *starts), struct.pack(f"={len(rows)}q", *ends)

    def work() -> None:
        for rows in (texts, [texts[0], texts[2]], []):
            turn.read_properties(*ranges(rows), names, True)
            turn.gather(*ranges(rows))
        turn.record_starts(struct.pack(">I", 100) + bytes(96), 91)
        turn.record_starts(b"no records", 91)
        for run in (record * 3, record * 3 + b"more", b""):
            turn.read_columns(run, 0, 9, 0, 15, names)
        with suppress(TypeError):
            turn.read_columns("no bytes", 0, 9, 0, 15, names)  # type: ignore[arg-type]
        with suppress(ValueError):
            turn.read_properties(b"", *ranges(texts)[1:], names, True)
        with suppress(ValueError):
            turn.gather(b"", *ranges(texts)[1:])

    assert turn.read_properties(*ranges(texts), names, True)[0] is not None
    assert turn.read_properties(*ranges(texts[:1]), names, True)[0] is None
    assert grown_bytes(work) < SLACK_BYTES


def test_rows_leak_no_memory(turn: compiled.Twin) -> None:
    bodies = [bytes(size) for size in (100, 0, 300, 129, 7)]
    numbers, own, row_ids = [1, 2, 3, 4, 5], ["own"] * 5, [f"ü-{number}" for number in range(5)]

    def work() -> None:
        turn.row_ids(b"prefix-", b"head", bodies)
        turn.row_ids(b"prefix-", [b"head", *bodies[1:]], bodies)
        turn.pack_rows(bodies, 0, numbers, b"beginning", b"common", own, b"mark", row_ids, 32_767, 500)
        assert turn.pack_rows(bodies, 2, numbers, b"beginning", b"common", own, b"mark", row_ids, 10, 500) is None
        with suppress(TypeError):
            turn.row_ids(b"prefix-", b"head", [*bodies, "no bytes"])  # type: ignore[list-item]
        with suppress(TypeError):
            turn.pack_rows([*bodies[1:], "no bytes"], 0, numbers, b"", b"", own, b"", row_ids, 32_767, 5000)  # type: ignore[list-item]

    assert grown_bytes(work) < SLACK_BYTES

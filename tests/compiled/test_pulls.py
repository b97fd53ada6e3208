"""The C answer to pulls alone: what it reads, where it ends, what it leaves to Python, and wrong arguments."""

from contextlib import suppress
from typing import Any

import pytest
from tests.compiled.test_memory import SLACK_BYTES, grown_bytes
from tests.compiled.test_turn import new_queue
from tests.spark.made_records import compressed, made
from tests.twins import compiled_or_skip

from pocketmq import compiled
from pocketmq.codes import PullFlag
from pocketmq.protocol.body_pack import pack_bodies
from pocketmq.protocol.frames import Frame, split_frames
from pocketmq.protocol.hot_headers import PullReplies
from pocketmq.store.queues.consume_queue import ENTRY, ConsumeQueue

KEY = b"11\x01\x02G\x01\x02T\x010\x014\x010\x01\x02*\x01\x02TAG"
NEAR, FAR = PullReplies(0, "FOUND"), PullReplies(0, "FOUND", 1)
LOG = bytes(range(200))
SIZE = 10
LIMITS = compiled.ReadBounds(0, 200, 0, 32, 8, 1000, 100, 800, 800)
HEAD = (
    '{"code":11,"extFields":{"consumerGroup":"G","topic":"T","queueId":"0","queueOffset":"%s","maxMsgNums":"4","sysFlag":"4",'
    '"commitOffset":"7","suspendTimeoutMillis":"0","subVersion":"0","subscription":"*","expressionType":"TAG"},'
    '"flag":0,"language":"JAVA","opaque":5,"version":479}'
)


@pytest.fixture(scope="module")
def turn() -> compiled.Twin:
    return compiled_or_skip()


def pull(offset: str = "0", head: str = HEAD) -> Frame:
    return 0, (head % offset).encode(), b""


def filled_queue(count: int = 20) -> ConsumeQueue:
    """A queue whose messages are adjacent in the log."""
    queue = new_queue()
    queue.pending += b"".join(ENTRY.pack(number * SIZE, SIZE, number % 2) for number in range(count))
    queue.max_offset = count
    return queue


def checked_pull_of(queue: Any, **other: Any) -> compiled.CheckedPull:
    parts = {"reset_key": "T@G", "tags": None, "near": NEAR.parts, "far": FAR.parts, "ahead": [0, b""]} | other
    return ("who", queue, *parts.values(), lambda offset, needed, ahead: queue.read(offset, ahead))


def map_at(offset: int) -> tuple[memoryview | None, int]:
    return memoryview(LOG), 0


def serve(
    turn: compiled.Twin, frames: list[Frame], checked: Any, limits: Any = LIMITS, max_bytes: int = 10_000, **more: Any
) -> Any:
    run = turn.serve_pulls(
        frames, 0, {KEY: checked}, more.get("resets", {}), limits, more.get("maps", map_at), max_bytes
    )
    return None if run is None else (*run[:2], b"".join(run[2]))


def test_an_answer_has_the_stored_messages(turn: compiled.Twin) -> None:
    count, rows, answers = serve(turn, [pull("3")], checked_pull_of(filled_queue()))

    assert (count, rows) == (1, [("who", 7, 7, 1, 4, 40)])
    assert answers == NEAR.head(5, 7, 0, 20, 40) + LOG[30:70]


def test_a_reader_far_behind_gets_the_suggested_broker(turn: compiled.Twin) -> None:
    _, _, answers = serve(turn, [pull("3")], checked_pull_of(filled_queue()), LIMITS._replace(cold_below=180))

    assert answers == FAR.head(5, 7, 0, 20, 40) + LOG[30:70]


def test_a_pull_of_deleted_messages_is_left_to_python(turn: compiled.Twin) -> None:
    behind = LIMITS._replace(log_start=40)

    assert serve(turn, [pull("3")], checked_pull_of(filled_queue()), behind) is None
    assert serve(turn, [pull("4")], checked_pull_of(filled_queue()), behind)[0] == 1


def test_only_selected_tags_are_picked(turn: compiled.Twin) -> None:
    _, rows, answers = serve(turn, [pull("0")], checked_pull_of(filled_queue(5), tags=frozenset({1})))

    assert rows == [("who", 5, 7, 1, 2, 20)]
    assert answers == NEAR.head(5, 5, 0, 5, 20) + LOG[10:20] + LOG[30:40]


def test_a_run_ends_when_the_answers_fill_the_buffer(turn: compiled.Twin) -> None:
    one = len(serve(turn, [pull()], checked_pull_of(filled_queue()))[2])

    count, _, _ = serve(turn, [pull()] * 9, checked_pull_of(filled_queue()), max_bytes=one + 1)

    assert count == 2
    assert serve(turn, [pull()], checked_pull_of(filled_queue()), max_bytes=0) is None


def test_a_run_is_sixteen_pulls_at_most(turn: compiled.Twin) -> None:
    count, _, answers = serve(turn, [pull()] * 40, checked_pull_of(filled_queue()))

    assert count == 16
    assert len(split_frames(answers)) == 16


NEXT = [("0", 5), ("4", 6), ("0004", 7), ("00012", 8), ("8", 100), ("1", -3), ("12", 0)]


FIRST = HEAD.replace('"opaque":5,', "").replace('"extFields"', '"opaque":5,"extFields"')


@pytest.mark.parametrize("head", [HEAD, FIRST], ids=["opaque behind the fields", "before them"])
def test_pulls_that_differ_only_in_offset_and_opaque_are_answered_separately(turn: compiled.Twin, head: str) -> None:
    frames = [pull(offset, head.replace('"opaque":5', f'"opaque":{opaque}')) for offset, opaque in NEXT]
    alone = [serve(turn, [frame], checked_pull_of(filled_queue())) for frame in frames]

    count, rows, answers = serve(turn, frames, checked_pull_of(filled_queue()))

    assert count == len(frames)
    assert answers == b"".join(one for _, _, one in alone)
    assert rows == [("who", 16, 7, len(frames), *(sum(run[1][0][part] for run in alone) for part in (4, 5)))]


@pytest.mark.parametrize(
    ("offset", "opaque"), [("x", "5"), ("-", "5"), ("4", "x"), ("4", "-"), ("4", "5,"), ("\\4", "5")]
)
def test_a_pull_without_a_number_at_the_expected_position_ends_the_run(
    turn: compiled.Twin, offset: str, opaque: str
) -> None:
    frames = [pull("1" * len(offset)), pull(offset, HEAD.replace('"opaque":5', f'"opaque":{opaque}'))]

    assert serve(turn, frames, checked_pull_of(filled_queue()))[0] == 1


def test_pulls_with_another_commit_offset_or_kind_have_separate_rows(turn: compiled.Twin) -> None:
    commits, other = HEAD.replace('"7"', '"8"'), HEAD.replace('"G"', '"H"')
    checked_pulls = {
        KEY: checked_pull_of(filled_queue()),
        KEY.replace(b"\x02G", b"\x02H"): ("other", *checked_pull_of(filled_queue(9))[1:]),
    }
    heads = (HEAD, HEAD, commits, commits, other, HEAD)
    frames = [pull(str(number), head) for number, head in enumerate(heads)]

    run = turn.serve_pulls(frames, 0, checked_pulls, {}, LIMITS, map_at, 10_000)

    assert run is not None
    rows = [("who", 5, 7, 2, 8, 80), ("who", 7, 8, 2, 8, 80), ("other", 8, 7, 1, 4, 40), ("who", 9, 7, 1, 4, 40)]
    assert run[:2] == (6, rows)
    assert b'"maxOffset":"9"' in b"".join(run[2])


def test_a_sequential_reader_gets_more_entries_ahead(turn: compiled.Twin) -> None:
    queue, ahead = filled_queue(3000), list[Any]((0, b""))
    checked, limits = checked_pull_of(queue, ahead=ahead), LIMITS._replace(log_end=30_000)

    def entries_ahead(offset: int) -> int:
        serve(turn, [pull(str(offset))], checked, limits, maps=lambda _: (memoryview(bytes(30_000)), 0))
        return len(ahead[1]) // ENTRY.size

    assert [entries_ahead(offset) for offset in (0, 252, 253, 1273, 1274, 100)] == [257, 257, 1025, 1025, 1025, 257]


def test_entries_are_read_ahead_and_again_when_there_are_more(turn: compiled.Twin) -> None:
    queue, ahead = filled_queue(8), [0, b""]
    checked = checked_pull_of(queue, ahead=ahead)
    serve(turn, [pull("0")], checked)
    assert ahead == [0, bytes(queue.pending)]
    queue.pending += ENTRY.pack(80, SIZE, 0) * 2
    queue.max_offset = 10

    _, rows, answers = serve(turn, [pull("4"), pull("8")], checked)

    assert rows == [("who", 10, 7, 2, 6, 60)]
    assert answers.endswith(LOG[80:90] * 2)


@pytest.mark.parametrize(
    "frame",
    [
        pull("20"),
        pull("-1"),
        pull("9" * 19),
        pull("x"),
        (1, pull()[1], b""),
        pull(head=HEAD.replace('"flag":0', '"flag":2')),
        pull(head=HEAD.replace('"flag":0', '"flag":1')),
        pull(head=HEAD.replace('"code":11', '"code":361')),
        pull(head=HEAD.replace('"code":11', '"code":115')),
        pull(head=HEAD.replace('"G"', '"H"')),
        pull(head=HEAD.replace('"topic":"T"', '"topic":"T","topic":"T"')),
        pull(head=HEAD.replace('"topic":"T",', "")),
        pull(head=HEAD.replace('"TAG"', '"T\\u0041G"')),
        pull(head=HEAD.replace('"expressionType":"TAG"', '"expressionType":null')),
        pull(head=HEAD.replace('"TAG"', '"TAG","requestSource":"one"')),
        pull(head=HEAD.replace('"subscription":"*",', "")),
        pull(head=HEAD[:-1]),
        pull(head=HEAD + "x"),
    ],
)
def test_irregular_pulls_are_left_to_python(turn: compiled.Twin, frame: Frame) -> None:
    assert serve(turn, [frame, pull()], checked_pull_of(filled_queue())) is None
    assert serve(turn, [pull(), frame, pull()], checked_pull_of(filled_queue()))[0] == 1


def test_fields_that_a_pull_does_not_declare_are_skipped(turn: compiled.Twin) -> None:
    frame = pull("0003", HEAD.replace('"TAG"', '"TAG","bname":"broker-a","maxMsgBytes":"262144"'))

    assert serve(turn, [frame], checked_pull_of(filled_queue()))[1] == [("who", 7, 7, 1, 4, 40)]


def test_a_group_that_was_reset_is_left_to_python(turn: compiled.Twin) -> None:
    assert serve(turn, [pull()], checked_pull_of(filled_queue()), resets={"T@G": {0: 5}}) is None
    assert serve(turn, [pull()], checked_pull_of(filled_queue()), resets={"T@H": {0: 5}}) is not None


def test_messages_across_files_or_outside_the_log_are_left_to_python(turn: compiled.Twin) -> None:
    def cut(offset: int) -> tuple[memoryview | None, int]:
        return memoryview(LOG[:15]), 0

    assert serve(turn, [pull()], checked_pull_of(filled_queue()), maps=cut) is None
    assert serve(turn, [pull()], checked_pull_of(filled_queue()), maps=lambda _: (None, 0)) is None
    assert serve(turn, [pull()], checked_pull_of(filled_queue()), LIMITS._replace(log_start=150)) is None


class Broken:
    """A queue whose file cannot be read."""

    min_offset, max_offset = 0, 20

    def read(self, offset: int, count: int) -> bytes:
        raise OSError("broken disk")


def test_an_error_of_the_first_pull_is_raised_and_otherwise_ends_the_run(turn: compiled.Twin) -> None:
    checked_pulls = {KEY: checked_pull_of(filled_queue()), KEY.replace(b"\x02G", b"\x02H"): checked_pull_of(Broken())}
    broken = pull(head=HEAD.replace('"G"', '"H"'))

    run = turn.serve_pulls([pull(), broken], 0, checked_pulls, {}, LIMITS, map_at, 10_000)

    assert run is not None
    assert run[0] == 1
    with pytest.raises(OSError, match="broken disk"):
        turn.serve_pulls([pull(), broken], 1, checked_pulls, {}, LIMITS, map_at, 10_000)


LARGE = 70_000
LONG_LOG = bytes(range(200)) * 2000
LONG_LIMITS = compiled.ReadBounds(0, len(LONG_LOG), 0, 2, 2, 10**6, 10**6, 800, 800)


def long_map(offset: int) -> tuple[memoryview, int]:
    return memoryview(LONG_LOG), 0


def queue_of(*entries: tuple[int, int]) -> ConsumeQueue:
    """A queue with messages at these positions and of these sizes."""
    queue = new_queue()
    queue.pending += b"".join(ENTRY.pack(offset, size, 0) for offset, size in entries)
    queue.max_offset = len(entries)
    return queue


def test_large_ranges_are_returned_as_views_without_a_copy(turn: compiled.Twin) -> None:
    checked = checked_pull_of(queue_of((0, LARGE), (LARGE, LARGE), (3 * LARGE, LARGE), (5, 10), (90, 10)))
    frames = [pull("3"), pull("0"), pull("1"), pull("3"), pull("4")]

    run = turn.serve_pulls(frames, 0, {KEY: checked}, {}, LONG_LIMITS, long_map, 10**6)

    assert run is not None
    small, first, both, second, one, other, rest = run[2]
    assert small == NEAR.head(5, 5, 0, 5, 20) + LONG_LOG[5:15] + LONG_LOG[90:100]
    assert (first, second) == (NEAR.head(5, 2, 0, 5, 2 * LARGE), NEAR.head(5, 3, 0, 5, 2 * LARGE))
    assert (both, one, other) == (LONG_LOG[: 2 * LARGE], LONG_LOG[LARGE : 2 * LARGE], LONG_LOG[3 * LARGE : 4 * LARGE])
    assert rest == bytes(small) + NEAR.head(5, 5, 0, 5, 10) + LONG_LOG[90:100]
    assert [type(piece) for piece in run[2]] == [bytes, bytes, memoryview, bytes, memoryview, memoryview, bytes]


def test_a_large_range_outlives_its_map(turn: compiled.Twin) -> None:
    mapped = memoryview(bytearray(LONG_LOG))
    checked = checked_pull_of(queue_of((7, 2 * LARGE)))

    run = turn.serve_pulls([pull()], 0, {KEY: checked}, {}, LONG_LIMITS, lambda _: (mapped, 0), 1)
    mapped.release()

    assert run is not None
    assert run[2][1] == LONG_LOG[7 : 7 + 2 * LARGE]


def test_messages_in_many_small_ranges_are_copied_together(turn: compiled.Twin) -> None:
    count, size = 16, 10_000
    checked = checked_pull_of(queue_of(*((number * 2 * size, size) for number in range(count))))
    limits = LONG_LIMITS._replace(hot_count=count, cold_count=count)
    many = pull(head=HEAD.replace('"maxMsgNums":"4"', '"maxMsgNums":"32"'))

    run = turn.serve_pulls([many], 0, {KEY: checked}, {}, limits, long_map, 1)

    assert run is not None
    [whole] = run[2]
    assert len(whole) > count * size


RECORDS = [made(number, b"body-%d" % number, b"p\x01" + b"v" * 300) for number in range(4)]


def bodies_asked() -> tuple[str, bytes]:
    """The head of a pull for bodies only, and its cache key."""
    flags = 4 | PullFlag.ONLY_BODIES
    return HEAD.replace('"sysFlag":"4"', f'"sysFlag":"{flags}"'), KEY.replace(b"\x014\x01", b"\x01%d\x01" % flags)


def packed_run(turn: compiled.Twin, records: list[bytes], frames: int = 1, max_bytes: int = 10**6) -> Any:
    log, head, key = b"".join(records), *bodies_asked()
    starts = [sum(map(len, records[:number])) for number in range(len(records))]
    checked = checked_pull_of(queue_of(*zip(starts, map(len, records), strict=True)))
    limits = compiled.ReadBounds(0, len(log), 0, 32, 8, 10**6, 10**6, 800, 800)
    return turn.serve_pulls(
        [pull("0", head)] * frames, 0, {key: checked}, {}, limits, lambda _: (memoryview(log), 0), max_bytes
    )


def test_a_reader_of_bodies_gets_a_pack_that_counts_its_messages(turn: compiled.Twin) -> None:
    size = sum(map(len, RECORDS))
    pack = pack_bodies([*RECORDS], 4, size)

    count, rows, [answer] = packed_run(turn, RECORDS)

    assert pack is not None
    assert bytes(answer) == NEAR.head(5, 4, 0, 4, len(pack)) + pack
    assert (count, rows) == (1, [("who", 4, 7, 1, 4, size)])


def test_packs_fill_the_buffer_with_their_own_bytes(turn: compiled.Twin) -> None:
    _, _, [answer] = packed_run(turn, RECORDS)

    count, _, answers = packed_run(turn, RECORDS, frames=5, max_bytes=2 * len(answer) + 1)

    assert (count, len(answers)) == (3, 3)


def test_a_reader_of_bodies_gets_records_if_one_is_irregular(turn: compiled.Twin) -> None:
    records = [*RECORDS[:3], compressed(3, b"body")]

    _, _, [answer] = packed_run(turn, records)

    assert bytes(answer) == NEAR.head(5, 4, 0, 4, sum(map(len, records))) + b"".join(records)


def test_pulls_leak_no_memory(turn: compiled.Twin) -> None:
    checked, broken = checked_pull_of(filled_queue(), tags={1}), checked_pull_of(Broken())
    large = checked_pull_of(queue_of((0, LARGE), (2 * LARGE, LARGE)))

    def work() -> None:
        checked[6][:] = [0, b""]
        for frames in ([pull()] * 3, [pull(), pull("99")], [pull("99")]):
            serve(turn, frames, checked)
        serve(turn, [pull()] * 2, large, LONG_LIMITS, maps=long_map)
        packed_run(turn, RECORDS, frames=3)
        packed_run(turn, [*RECORDS[:3], compressed(3, b"body")])
        serve(turn, [pull()], checked, maps=lambda _: (None, 0))
        with suppress(OSError):
            serve(turn, [pull()], broken)
        with suppress(TypeError):
            serve(turn, [pull()], checked_pull_of(filled_queue(), near=(b"",)))

    assert grown_bytes(work) < SLACK_BYTES


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ((), 0, {}, {}, LIMITS, map_at, 1),
        ([], -1, {}, {}, LIMITS, map_at, 1),
        ([], 0, [], {}, LIMITS, map_at, 1),
        ([], 0, {}, None, LIMITS, map_at, 1),
        ([], 0, {}, {}, LIMITS[:8], map_at, 1),
        ([], 0, {}, {}, LIMITS._replace(log_start=9, log_end=0), map_at, 1),
        ([], 0, {}, {}, LIMITS, map_at, 2**70),
        ([None], 0, {}, {}, LIMITS, map_at, 1),
        ([(0, "header", b"")], 0, {}, {}, LIMITS, map_at, 1),
        ([pull()], 0, {KEY: ()}, {}, LIMITS, map_at, 1),
        ([pull()], 0, {KEY: checked_pull_of(None)}, {}, LIMITS, map_at, 1),
        ([pull()], 0, {KEY: checked_pull_of(filled_queue(), tags=5)}, {}, LIMITS, map_at, 1),
        ([pull()], 0, {KEY: checked_pull_of(filled_queue(), near=(b"",))}, {}, LIMITS, map_at, 1),
        ([pull()], 0, {KEY: checked_pull_of(filled_queue(), near=("",) * 5)}, {}, LIMITS, map_at, 1),
        ([pull()], 0, {KEY: checked_pull_of(filled_queue(), ahead=None)}, {}, LIMITS, map_at, 1),
        ([pull()], 0, {KEY: checked_pull_of(filled_queue(), ahead=[0])}, {}, LIMITS, map_at, 1),
        ([pull()], 0, {KEY: checked_pull_of(filled_queue(), ahead=["0", b""])}, {}, LIMITS, map_at, 1),
        ([pull()], 0, {KEY: checked_pull_of(filled_queue(), ahead=[0, ""])}, {}, LIMITS, map_at, 1),
        ([pull()], 0, {KEY: checked_pull_of(filled_queue())}, {}, LIMITS, str, 1),
        ([pull()], 0, {KEY: checked_pull_of(filled_queue())}, {}, LIMITS, None, 1),
    ],
)
def test_a_call_with_wrong_arguments_is_an_error(turn: compiled.Twin, arguments: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError, IndexError, AttributeError, BufferError)):
        turn.serve_pulls(*arguments)

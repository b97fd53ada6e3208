"""The compiled answer to pulls by itself: what it reads, where it ends, what it leaves to Python, and what no caller should give it."""

from contextlib import suppress
from typing import Any

import pytest
from tests.compiled.test_memory import SLACK_BYTES, grown_bytes
from tests.compiled.test_turn import new_queue
from tests.twins import compiled_or_skip

from pocketmq import compiled
from pocketmq.protocol.frames import Frame, split_frames
from pocketmq.protocol.replies import PullReplies
from pocketmq.store.consume_queue import ENTRY, ConsumeQueue

KEY = b"11\x01\x02G\x01\x02T\x010\x014\x010\x01\x02*\x01\x02TAG"
NEAR, FAR = PullReplies(0, "FOUND"), PullReplies(0, "FOUND", 1)
LOG = bytes(range(200))
SIZE = 10
LIMITS = (0, 200, 0, 32, 8, 1000, 100, 800, 800)
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
    """A queue whose messages lie one behind the other in the log."""
    queue = new_queue()
    queue.pending += b"".join(ENTRY.pack(number * SIZE, SIZE, number % 2) for number in range(count))
    queue.max_offset = count
    return queue


def place_of(queue: Any, **other: Any) -> compiled.PullPlace:
    parts = {"reset_key": "T@G", "tags": None, "near": NEAR.parts, "far": FAR.parts, "ahead": [0, b""]} | other
    return ("who", queue, *parts.values())


def map_at(offset: int) -> tuple[memoryview | None, int]:
    return memoryview(LOG), 0


def serve(
    turn: compiled.Twin, frames: list[Frame], place: Any, limits: Any = LIMITS, room: int = 10_000, **more: Any
) -> Any:
    return turn.serve_pulls(frames, 0, {KEY: place}, more.get("resets", {}), limits, more.get("maps", map_at), room)


def test_an_answer_has_the_messages_as_they_lie_in_the_log(turn: compiled.Twin) -> None:
    pulls, answers = serve(turn, [pull("3")], place_of(filled_queue()))

    assert pulls == [("who", 7, 7, 4, 40)]
    assert answers == NEAR.head(5, 7, 0, 20, 40) + LOG[30:70]


def test_who_is_far_behind_is_told_which_broker_to_ask(turn: compiled.Twin) -> None:
    _, answers = serve(turn, [pull("3")], place_of(filled_queue()), (0, 200, 180, *LIMITS[3:]))

    assert answers == FAR.head(5, 7, 0, 20, 40) + LOG[30:70]


def test_only_wanted_tags_are_picked(turn: compiled.Twin) -> None:
    pulls, answers = serve(turn, [pull("0")], place_of(filled_queue(5), tags=frozenset({1})))

    assert pulls == [("who", 5, 7, 2, 20)]
    assert answers == NEAR.head(5, 5, 0, 5, 20) + LOG[10:20] + LOG[30:40]


def test_a_run_ends_when_the_answers_have_filled_the_room(turn: compiled.Twin) -> None:
    one = len(serve(turn, [pull()], place_of(filled_queue()))[1])

    pulls, _ = serve(turn, [pull()] * 9, place_of(filled_queue()), room=one + 1)

    assert len(pulls) == 2
    assert serve(turn, [pull()], place_of(filled_queue()), room=0) is None


def test_a_run_is_sixteen_pulls_at_most(turn: compiled.Twin) -> None:
    pulls, answers = serve(turn, [pull()] * 40, place_of(filled_queue()))

    assert len(pulls) == 16
    assert len(split_frames(answers)) == 16


def test_entries_are_read_ahead_and_read_again_when_there_are_more(turn: compiled.Twin) -> None:
    queue, ahead = filled_queue(8), [0, b""]
    place = place_of(queue, ahead=ahead)
    serve(turn, [pull("0")], place)
    assert ahead == [0, bytes(queue.pending)]
    queue.pending += ENTRY.pack(80, SIZE, 0) * 2
    queue.max_offset = 10

    pulls, answers = serve(turn, [pull("4"), pull("8")], place)

    assert [next_offset for _, next_offset, *_ in pulls] == [8, 10]
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
def test_what_is_not_usual_is_left_to_python(turn: compiled.Twin, frame: Frame) -> None:
    assert serve(turn, [frame, pull()], place_of(filled_queue())) is None
    assert len(serve(turn, [pull(), frame, pull()], place_of(filled_queue()))[0]) == 1


def test_fields_that_a_pull_does_not_declare_are_passed_over(turn: compiled.Twin) -> None:
    frame = pull("0003", HEAD.replace('"TAG"', '"TAG","bname":"broker-a","maxMsgBytes":"262144"'))

    assert serve(turn, [frame], place_of(filled_queue()))[0] == [("who", 7, 7, 4, 40)]


def test_a_group_that_was_reset_is_left_to_python(turn: compiled.Twin) -> None:
    assert serve(turn, [pull()], place_of(filled_queue()), resets={"T@G": {0: 5}}) is None
    assert serve(turn, [pull()], place_of(filled_queue()), resets={"T@H": {0: 5}}) is not None


def test_messages_that_do_not_lie_in_one_file_or_not_in_the_log_are_left_to_python(turn: compiled.Twin) -> None:
    def cut(offset: int) -> tuple[memoryview | None, int]:
        return memoryview(LOG[:15]), 0

    assert serve(turn, [pull()], place_of(filled_queue()), maps=cut) is None
    assert serve(turn, [pull()], place_of(filled_queue()), maps=lambda _: (None, 0)) is None
    assert serve(turn, [pull()], place_of(filled_queue()), (150, 200, *LIMITS[2:])) is None


class Broken:
    """A queue whose file cannot be read."""

    min_offset, max_offset = 0, 20

    def read(self, offset: int, count: int) -> bytes:
        raise OSError("broken disk")


def test_an_error_is_told_when_it_concerns_the_first_and_else_ends_the_run(turn: compiled.Twin) -> None:
    places = {KEY: place_of(filled_queue()), KEY.replace(b"\x02G", b"\x02H"): place_of(Broken())}
    broken = pull(head=HEAD.replace('"G"', '"H"'))

    run = turn.serve_pulls([pull(), broken], 0, places, {}, LIMITS, map_at, 10_000)

    assert run is not None
    assert len(run[0]) == 1
    with pytest.raises(OSError, match="broken disk"):
        turn.serve_pulls([pull(), broken], 1, places, {}, LIMITS, map_at, 10_000)


def test_pulls_leave_nothing_behind(turn: compiled.Twin) -> None:
    place, broken = place_of(filled_queue(), tags={1}), place_of(Broken())

    def work() -> None:
        place[6][:] = [0, b""]
        for frames in ([pull()] * 3, [pull(), pull("99")], [pull("99")]):
            serve(turn, frames, place)
        serve(turn, [pull()], place, maps=lambda _: (None, 0))
        with suppress(OSError):
            serve(turn, [pull()], broken)
        with suppress(TypeError):
            serve(turn, [pull()], place_of(filled_queue(), near=(b"",)))

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
        ([], 0, {}, {}, (9, 0, *LIMITS[2:]), map_at, 1),
        ([], 0, {}, {}, LIMITS, map_at, 2**70),
        ([None], 0, {}, {}, LIMITS, map_at, 1),
        ([(0, "header", b"")], 0, {}, {}, LIMITS, map_at, 1),
        ([pull()], 0, {KEY: ()}, {}, LIMITS, map_at, 1),
        ([pull()], 0, {KEY: place_of(None)}, {}, LIMITS, map_at, 1),
        ([pull()], 0, {KEY: place_of(filled_queue(), tags=5)}, {}, LIMITS, map_at, 1),
        ([pull()], 0, {KEY: place_of(filled_queue(), near=(b"",))}, {}, LIMITS, map_at, 1),
        ([pull()], 0, {KEY: place_of(filled_queue(), near=("",) * 5)}, {}, LIMITS, map_at, 1),
        ([pull()], 0, {KEY: place_of(filled_queue(), ahead=None)}, {}, LIMITS, map_at, 1),
        ([pull()], 0, {KEY: place_of(filled_queue(), ahead=[0])}, {}, LIMITS, map_at, 1),
        ([pull()], 0, {KEY: place_of(filled_queue(), ahead=["0", b""])}, {}, LIMITS, map_at, 1),
        ([pull()], 0, {KEY: place_of(filled_queue(), ahead=[0, ""])}, {}, LIMITS, map_at, 1),
        ([pull()], 0, {KEY: place_of(filled_queue())}, {}, LIMITS, str, 1),
        ([pull()], 0, {KEY: place_of(filled_queue())}, {}, LIMITS, None, 1),
    ],
)
def test_a_call_with_the_wrong_things_is_an_error(turn: compiled.Twin, arguments: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError, IndexError, AttributeError, BufferError)):
        turn.serve_pulls(*arguments)

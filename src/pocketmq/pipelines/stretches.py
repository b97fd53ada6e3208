"""A known stretch of messages, done piece by piece: what backfill and replay have in common.

    queue 0 ├────┼────┼────┤            what is done is fixed when it is begun: ranges, and in how many pieces
    queue 1 ├──┼──┼──┤                  each piece takes a part of every queue, so that queues go on side by side
             p0  p1  p2

A note beside the checkpoint says how many pieces are done. One that was under way when the run was killed is done again: it has the
same messages in the same partitions, so its sink finds out what of it is there.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from pocketmq.clock import Clock
from pocketmq.errors import PipelineFailed, PocketMQError, WrongState
from pocketmq.model.queue import QueueRange
from pocketmq.pipelines.failures import told
from pocketmq.pipelines.notes import Notes
from pocketmq.pipelines.progress import Progress
from pocketmq.pipelines.running import Run, Summary

NOTE: Final = "stretches.json"
VERSION: Final = 1
PACED_S: Final = 5
"""With a bound on the rate no piece is longer than so many seconds of it: within a piece it is as fast as it can be."""


class Piece(NamedTuple):
    """A part of the way: its number, what of each queue it takes, and in how many partitions."""

    number: int
    ranges: Sequence[QueueRange]
    partitions: int


Do = Callable[[Piece], int]
"""Does a piece; returns how many rows came of it."""


class Stretches(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done, and how much of it is."""

    ranges: tuple[QueueRange, ...]
    pieces: int
    partitions: int
    done: int = 0
    rows: int = 0
    version: int = VERSION

    @property
    def messages(self) -> int:
        return sum(map(len, self.ranges))

    def piece(self, number: int) -> list[QueueRange]:
        """The ranges of a piece; queues that it has nothing of are left out."""
        cut = [QueueRange(one.queue, self.place(one, number), self.place(one, number + 1)) for one in self.ranges]
        return [one for one in cut if len(one)]

    def place(self, whole: QueueRange, number: int) -> int:
        """Where a piece begins in one of the ranges."""
        return whole.start + len(whole) * number // self.pieces


def stretches(ranges: Iterable[QueueRange], *, max_messages: int, rate: int | None, partitions: int) -> Stretches:
    """These ranges in pieces of at most about `max_messages`."""
    kept = tuple(sorted(one for one in ranges if len(one)))
    size = max_messages if rate is None else min(max_messages, rate * PACED_S)
    total = sum(map(len, kept))
    return Stretches(ranges=kept, pieces=-(-total // size), partitions=partitions)


def pause_s(messages: int, elapsed_s: float, rate: int | None) -> float:
    """How long to wait, so that `messages` in all are not more than `rate` a second."""
    return 0.0 if rate is None else max(0.0, messages / rate - elapsed_s)


def run_pieces(
    query: str, notes: Notes, begin: Callable[[], Stretches], do: Do, run: Run, rate: int | None = None
) -> Summary:
    """Do what is left to do of what was noted, or begin it."""
    state = _read(notes)
    if state is None:
        state = begin()
        notes.write(NOTE, msgspec.json.encode(state).decode())
    before, clock = state.done, run.clock
    began = clock.monotonic()
    messages = 0
    while state.done < state.pieces and not run.stopping.is_set():
        piece_began = clock.monotonic()
        ranges = state.piece(state.done)
        rows = _done(do, Piece(state.done, ranges, state.partitions)) if ranges else 0
        messages += sum(map(len, ranges))
        state = msgspec.structs.replace(state, done=state.done + 1, rows=state.rows + rows)
        notes.write(NOTE, msgspec.json.encode(state).decode())
        run.report(_progress(query, state, messages, began, piece_began, clock))
        if state.done < state.pieces:
            run.stopping.wait(pause_s(messages, clock.monotonic() - began, rate))
    facts: dict[str, Any] = {"rows_written": state.rows}
    if before and before == state.pieces:
        facts["note"] = "all of it was done by an earlier run; give another --checkpoint to do it again"
    return Summary(
        ended="caught up" if state.done == state.pieces else "stopped",
        messages=messages,
        batches=state.done - before,
        took_ms=round((clock.monotonic() - began) * 1000),
        facts=facts,
    )


def _read(notes: Notes) -> Stretches | None:
    text = notes.read(NOTE)
    if text is None:
        return None
    try:
        state = msgspec.json.decode(text, type=Stretches)
    except msgspec.MsgspecError as error:
        raise WrongState(f"the note {NOTE} of the checkpoint is damaged: {error}; give another --checkpoint") from None
    if state.version != VERSION:
        raise WrongState(f"the note {NOTE} of the checkpoint is of version {state.version}; give another --checkpoint")
    return state


def _done(do: Do, piece: Piece) -> int:
    try:
        return do(piece)
    except PocketMQError:
        raise
    except Exception as error:  # of Spark, which has many kinds
        raise PipelineFailed(told(error)) from error


def _progress(query: str, state: Stretches, messages: int, began: float, piece_began: float, clock: Clock) -> Progress:
    now = clock.monotonic()
    per_s = messages / (now - began) if now > began else 0.0
    behind = sum(one.end - state.place(one, state.done) for one in state.ranges)
    return Progress(
        query=query,
        batch=state.done - 1,
        messages=messages,
        per_s=round(per_s, 1),
        behind=behind,
        eta_s=round(behind / per_s, 1) if per_s else None,
        took_ms=round((now - piece_began) * 1000),
    )

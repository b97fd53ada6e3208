"""Rows that come too late, as rows: split off with the watermark that they missed, instead of dropped without a word.

    batch          0              1              2
    seen until     ── 10:05 ──►   ── 10:20 ──►   ── 10:31 ──►     the latest event time of all batches before
    watermark      none           09:55          10:10            that, less the delay (here 10 minutes)
    late           none           until 09:55    until 10:10

What a batch itself brings moves the watermark of the next one only, as in Spark's `withWatermark`. But Spark tells nobody which rows it
drops, and no filter can ask for the watermark. So the latest event time is kept here, in a note for each batch beside the checkpoint,
and a batch that is run again finds the same watermark and splits in the same way.

With `window` a row is late when its whole window is over, as a `groupBy(window(…))` sees it. Spark itself is more patient: since 3.5 it drops by
the watermark of one batch before. So whatever it drops in the same batches is late by this rule, and some rows that are late by it, it still takes.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from pocketmq.errors import InvalidSetting, WrongState
from pocketmq.files import Files
from pocketmq.pipelines.libraries import Column, DataFrame, SparkSession
from pocketmq.pipelines.libraries import functions as f
from pocketmq.pipelines.notes import notes_in

WATERMARK: Final = "watermark"
"""The column of late rows that says what they missed."""
KEPT_NOTES: Final = 100
"""Batches are run again only if they were the last one; Spark keeps its own notes of so many."""
_SPAN: Final = re.compile(r"(\d+) (milli|second|minute|hour|day)s?(?:econds?)?")
_UNIT_MS: Final = {"milli": 1, "second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}


class Split(NamedTuple):
    """A batch by whether its rows came in time."""

    on_time: DataFrame
    late: DataFrame
    """With the column `watermark`, the time that they came too late for."""


class LateRows:
    """Splits late rows off, batch by batch, in a `foreachBatch`. `folder` is one of its own, beside the checkpoint."""

    def __init__(
        self,
        spark: SparkSession,
        folder: str,
        *,
        event_time: str,
        delay: str = "10 minutes",
        window: str | None = None,
        files: Files | None = None,
    ) -> None:
        self._notes = notes_in(spark, folder, files)
        self._event_time = event_time
        self._delay_ms = span_ms(delay, "delay")
        self._window_ms = None if window is None else span_ms(window, "window")

    def split(self, batch: DataFrame, batch_id: int) -> Split:
        """The rows of a batch. It is read twice: once for its latest event time, so `persist()` it before."""
        seen_us = self._seen_before(batch_id)
        latest = batch.agg(f.unix_micros(f.max(self._event_time))).first()
        latest_us = None if latest is None else latest[0]
        known = [each for each in (seen_us, latest_us) if each is not None]
        note = {"batch": batch_id, "seenUs": max(known, default=None)}
        self._notes.write(_note(batch_id), msgspec.json.encode(note).decode())
        if seen_us is None:
            return Split(batch, batch.where(f.lit(False)).withColumn(WATERMARK, f.lit(None).cast("timestamp")))
        # As Spark: whole milliseconds, and what ends at the watermark is over.
        watermark_us = (seen_us // 1000 - self._delay_ms) * 1000
        is_late = f.coalesce(self._ends_us() <= f.lit(watermark_us), f.lit(False))
        late = batch.where(is_late).withColumn(WATERMARK, f.timestamp_micros(f.lit(watermark_us)))
        return Split(batch.where(~is_late), late)

    def _ends_us(self) -> Column:
        """When a row is over: at its event time, or at the end of its window."""
        at_us = f.unix_micros(self._event_time)
        if self._window_ms is None:
            return at_us
        size = self._window_ms * 1000
        return at_us - f.pmod(at_us, f.lit(size)) + f.lit(size)

    def _seen_before(self, batch_id: int) -> int | None:
        """The latest event time of all batches before this one, in microseconds; None for the first."""
        if batch_id == 0:
            return None
        text = self._notes.read(_note(batch_id - 1))
        told: Mapping[str, int | None] = {} if text is None else msgspec.json.decode(text)
        if told.get("batch") != batch_id - 1:
            raise WrongState(
                f"there is no note of batch {batch_id - 1} about the latest event time, so nobody knows which rows are late: "
                "use the folder that belongs to this checkpoint, or begin both anew"
            )
        return told["seenUs"]


def _note(batch_id: int) -> str:
    # A few notes in turns: only the last batch can be run again, and looks at the note of the one before.
    return f"seen-{batch_id % KEPT_NOTES}"


def span_ms(text: str, name: str) -> int:
    """A span of time as Spark writes it, `10 minutes`, in milliseconds."""
    match = _SPAN.fullmatch(text.strip().lower())
    if not match:
        raise InvalidSetting(f"{name} = {text!r} is no span of time such as '30 seconds', '10 minutes' or '1 hour'")
    return int(match[1]) * _UNIT_MS[match[2]]

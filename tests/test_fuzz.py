"""Half a minute of malformed frames; `make fuzz` runs for ten minutes."""

import asyncio
import random
from pathlib import Path

import pytest
from conformance.fuzz.__main__ import TRIALS
from conformance.fuzz.frames import Mutations, requests, with_opaque

from pocketmq.protocol.command import decode_command
from pocketmq.protocol.frames import split_frames

SECONDS = 9.0
SEED = 20


@pytest.mark.parametrize("trial", TRIALS.values(), ids=TRIALS)
def test_invalid_frames_break_no_server(trial: object, tmp_path: Path) -> None:
    assert callable(trial)

    told = asyncio.run(trial(tmp_path / "trial", SECONDS, SEED))

    assert told.partition(" ")[0].replace(",", "").isdigit()


def test_every_request_has_a_frame_to_mutate() -> None:
    frames = [decode_command(frame) for whole in requests() for frame in split_frames(whole)]

    assert len({command.code for command in frames}) > 100


def test_equal_seeds_mutate_a_frame_equally() -> None:
    def changed(seed: int) -> list[bytes]:
        mutations = Mutations(random.Random(seed))
        return [mutations.of(frame) for frame in requests()[:200]]

    assert changed(1) == changed(1) != changed(2)
    assert sum(one != frame for one, frame in zip(changed(1), requests()[:200], strict=True)) > 100


def test_an_answer_is_adapted_to_another_request() -> None:
    (frame,) = split_frames(with_opaque(requests()[-1], 77))

    assert decode_command(frame).opaque == 77

"""The connector's benchmarks run, at a size that measures nothing, and both ways to decode give the same."""

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from bench.spark import decoding, sinking
from bench.spark.__main__ import main

TINY = ["--rounds", "1", "--round-ms", "0.01"]
SUBJECTS = [*decoding.subjects(total_bytes=20_000), *sinking.subjects(rows=5)]


def test_every_subject_is_printed_with_its_candidates(capsys: pytest.CaptureFixture[str]) -> None:
    main(TINY, subjects=SUBJECTS)

    printed = capsys.readouterr().out
    for subject in SUBJECTS:
        assert subject.name in printed
        assert all(candidate.name in printed for candidate in subject.candidates)
    assert "≥ 2.0" in printed
    assert "≥ 0.7" in printed


def test_words_choose_subjects(capsys: pytest.CaptureFixture[str]) -> None:
    main(["sink", *TINY], subjects=SUBJECTS)

    printed = capsys.readouterr().out
    assert "sink, 100 B" in printed
    assert "value only" not in printed


@pytest.mark.parametrize("arguments", [["nothing is called so"], ["--rounds", "0"]])
def test_a_run_that_would_measure_nothing_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments, subjects=SUBJECTS)

"""The connector's benchmarks run, at a size without meaning, and both decoders have the same result."""

import os
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from bench.spark import decoding, end_to_end, sinking
from bench.spark.__main__ import main
from bench.spark.cases import Case
from bench.spark.costs import Shot, middle, taken
from bench.spark.report import Measured, sheet
from bench.spark.starts import first_results, starts

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


def test_arguments_select_subjects(capsys: pytest.CaptureFixture[str]) -> None:
    main(["sink", *TINY], subjects=SUBJECTS)

    printed = capsys.readouterr().out
    assert "sink, 100 B" in printed
    assert "value only" not in printed


@pytest.mark.parametrize("arguments", [["nothing is called so"], ["--rounds", "0"]])
def test_a_run_without_measurements_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments, subjects=SUBJECTS)


def shot(seconds: float, server_s: float, python_s: float, java_s: float) -> Shot:
    return Shot(seconds, server_s, python_s, java_s, others=0.1)


def result(who: str, what: str, taken: Shot, **more: Any) -> tuple[tuple[str, str], Measured]:
    return (who, what), Measured(Case(who, what, 1_000_000, lambda: None, **more), taken, taken.seconds / 2)


def test_a_row_is_shown_beside_parquet_kafka_and_its_goals() -> None:
    what = "batch, all columns, to noop"
    results = dict(
        [
            result("Parquet", what, shot(0.5, 0.0, 0.0, 1.0)),
            result("PocketMQ", what, shot(1.0, 0.2, 0.5, 0.8), rate_aim=900_000.0, has_share_aim=True),
            result("Kafka", what, shot(2.0, 0.5, 0.0, 2.5)),
        ]
    )

    _, ours, kafka = sheet(results, 100).rows

    assert ours[:6] == [f"PocketMQ: {what}", "1,000", "2,000", "100", "0.50", "2.00"]
    assert ours[6:-1] == ["0.20", "0.50", "0.80", "1.50", "2.00"]
    assert ours[-1] == "≥ 900 krow/s: met, ≥ 60% of Parquet: missed, ahead of Kafka per core: met"
    assert kafka[-1] == ""


def test_streams_have_aims_of_their_own_beside_kafka() -> None:
    what = "stream, all columns, to noop"
    results = dict(
        [
            result("PocketMQ", what, shot(1.0, 0.2, 0.5, 0.8), has_share_aim=True, per_core_aim=1.2, kafka_aim=1.1),
            result("Kafka", what, shot(1.2, 0.5, 0.0, 1.2)),
        ]
    )

    ours, _ = sheet(results, 1024).rows

    assert ours[-1] == "≥ 1.2 times Kafka per core: missed, ≥ 1.1 times Kafka: met"


def test_first_results_stand_beside_those_of_kafka() -> None:
    what = "first row of a batch"
    shots = {
        ("PocketMQ", what): [shot(4.0, 0.0, 1.0, 2.0), shot(9.0, 0.0, 1.0, 2.0), shot(4.25, 0.1, 0.9, 2.0)],
        ("Kafka", what): [shot(3.8, 0.1, 0.0, 2.0), shot(4.0, 0.1, 0.0, 2.0), shot(3.9, 0.1, 0.0, 2.0)],
    }

    ours, kafka = first_results(shots).rows

    assert ours == [f"PocketMQ: {what}", "4.25", "0.00", "1.00", "2.00", "3.00", "+0.35 s to Kafka, ≤ +0.3: missed"]
    assert (kafka[1], kafka[-1]) == ("3.90", "")


def test_a_cost_too_small_to_be_shown_has_no_sign() -> None:
    results = dict([result("Parquet", "batch", shot(1.0, 0.0, -0.000_001, 1.0))])

    (row,) = sheet(results, 100).rows

    assert row[6:10] == ["0.00", "0.00", "1.00", "1.00"]


def test_without_kafka_a_row_has_no_ratio_to_it() -> None:
    results = dict([result("PocketMQ", "sink", shot(10.0, 1.0, 1.0, 1.0), rate_aim=150_000.0)])

    ((_, rate, _, _, *beside, per_core, aims),) = sheet(results, 1024, ["why"]).rows

    assert (rate, beside[:2], per_core) == ("100", ["", ""], "")
    assert aims == "≥ 150 krow/s: missed"


def test_a_run_is_measured_with_its_child_processes() -> None:
    busy = [sys.executable, "-c", "sum(range(3_000_000))"]

    found = taken(lambda: subprocess.run(busy, check=True).returncode + 7.0, None, os.getpid())

    assert found.seconds == 7.0
    assert found.python_s > 0
    assert found.server_s == 0
    assert middle([shot(1.0, 1, 2, 3), shot(5.0, 0, 9, 4), shot(2.0, 2, 1, 5)]) == Shot(2.0, 1, 2, 4, 0.1)


def test_the_start_of_a_query_is_shown_beside_the_cost_of_spark() -> None:
    cases = [Case(who, "stream, value only, to noop", 7, lambda: None) for who in ("PocketMQ", "Kafka")]

    found = starts(cases, {}, os.getpid(), rounds=1)

    ours, kafka, spark_alone = found.rows
    assert ours == ["PocketMQ: stream, value only, to noop", "0.00", ours[2], ours[3], ours[4]]
    assert kafka[0].startswith("Kafka: ")
    assert float(spark_alone[2]) > 0
    assert "over 7 rows" in found.notes[0]


@pytest.mark.parametrize("arguments", [["--rows", "0"], ["--rounds", "0"]])
def test_a_run_on_spark_without_measurements_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        end_to_end.main(arguments)

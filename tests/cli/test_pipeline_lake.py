"""`pocketmq pipeline lake`: the content of a lake, read from its manifest alone."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pocketmq.cli import main
from pocketmq.files import DiskFiles
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.pipelines.archive.form import Form, keep_form
from pocketmq.pipelines.archive.manifest import Commit, DataFile, ManifestLog, Span
from pocketmq.spark.read.offsets import Cause, Lost

QUEUE = MessageQueue("orders", "broker-a", 0)
HOUR_MS = 3_600_000


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    keep_form(tmp_path, Form(), DiskFiles())
    with ManifestLog(tmp_path) as log:
        for number in (1, 2):
            place = QueueRange(QUEUE, 10 * number, 10 * number + 10)
            file = DataFile(
                path=f"topic=orders/day=1970-01-01/{number}.parquet",
                topic="orders",
                spans=(Span(place, 10),),
                bytes=100,
                first_store_ms=number * HOUR_MS,
                last_store_ms=number * HOUR_MS + 1,
            )
            lost = (Lost(QueueRange(QUEUE, 0, 10), Cause.RETENTION),) if number == 1 else ()
            log.commit(Commit(number=number, made_ms=1, added=(file,), lost=lost, ends=(place,)))
    return tmp_path


def asked(lake: Path, *words: str) -> list[dict[str, object]]:
    result = CliRunner().invoke(main, ["pipeline", "lake", str(lake), *words, "--json"])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_the_content_of_a_lake_is_shown(lake: Path) -> None:
    assert asked(lake) == [
        {"topic": "orders", "broker": "broker-a", "queue": 0, "start": 10, "end": 30, "messages": 20}
    ]
    shown = CliRunner().invoke(main, ["pipeline", "lake", str(lake)])
    assert "20 messages in 2 files, 200 bytes; 10 messages were deleted" in shown.output


def test_the_file_of_an_offset_and_of_a_time_is_found(lake: Path) -> None:
    second = "topic=orders/day=1970-01-01/2.parquet"

    assert [row["file"] for row in asked(lake, "--offset", "25")] == [second]
    assert [row["file"] for row in asked(lake, "--offset", "25", "--queue", "broker-a:0", "--topic", "orders")] == [
        second
    ]
    assert asked(lake, "--offset", "25", "--queue", "broker-a:1") == []
    assert [row["file"] for row in asked(lake, "--time", "1970-01-01T02:00:00+00:00")] == [second]


def test_lost_ranges_are_shown(lake: Path) -> None:
    assert [(row["start"], row["end"], row["cause"]) for row in asked(lake, "--lost")] == [(0, 10, "retention")]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--offset", "1", "--time", "2h"], "give either --offset or --time"),
        (["--queue", "broker-a:0"], "--queue needs --offset or --missing"),
        (["--key", "a", "--missing", "0..9"], "give either --key or --missing"),
        (["--missing", "9..9"], "is not a range of offsets such as 100..500"),
    ],
)
def test_invalid_combinations_of_options_are_refused(lake: Path, words: list[str], told: str) -> None:
    result = CliRunner().invoke(main, ["pipeline", "lake", str(lake), *words])

    assert result.exit_code == 64
    assert told in result.output


def test_a_folder_that_is_not_a_lake_is_reported(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["pipeline", "lake", str(tmp_path)])

    assert result.exit_code == 3
    assert "is not a lake" in result.output


def test_missing_offsets_have_a_reason(lake: Path) -> None:
    found = asked(lake, "--missing", "0..40")

    assert [(row["start"], row["end"], row["why"]) for row in found] == [
        (0, 10, "lost: retention"),
        (30, 40, "not archived yet"),
    ]
    assert asked(lake, "--missing", "10..30", "--topic", "orders", "--queue", "broker-a:0") == []


def test_show_is_the_command_of_a_bare_name(lake: Path) -> None:
    for words in (["show", str(lake)], ["--topic", "orders", str(lake)], [str(lake), "--topic", "orders"]):
        result = CliRunner().invoke(main, ["pipeline", "lake", *words, "--json"])
        assert (result.exit_code, len(result.stdout.splitlines())) == (0, 1), result.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["show", "lake.db.orders"], "set --format to delta or iceberg"),
        (["show", "lake.db.orders", "--format", "orc"], "only tables of delta and iceberg have records of offsets"),
        (["expire", "."], "is a lake of files, which has no old commits to remove"),
        (["show", ".", "--commits"], "--commits is for tables"),
    ],
)
def test_what_only_a_table_has_is_refused_for_others(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["pipeline", "lake", *words])

    assert result.exit_code != 0
    assert told in result.output


def test_a_format_without_a_library_for_this_spark_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pocketmq.pipelines.archive.sinks.pyspark_version", lambda: "4.9.1")
    (tmp_path / "_delta_log").mkdir()

    result = CliRunner().invoke(main, ["pipeline", "lake", str(tmp_path)])

    assert result.exit_code != 0
    assert "there is no library of Delta for Spark 4.9.1, only for 4.0, 4.1, 4.2" in result.output

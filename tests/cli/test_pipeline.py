"""`pocketmq pipeline`: flags out of settings, dry runs, a run to its end, and projects."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from click.testing import CliRunner, Result
from tests.spark.broker_kit import Broker, fill, new_topic

from pocketmq import pipelines
from pocketmq.cli import main
from pocketmq.cli.commands import ExitCode
from pocketmq.pipelines.project import running
from pocketmq.pipelines.project.running import Done

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id string NOT NULL"


def invoke(*arguments: str | Path, **more: Any) -> Result:
    return CliRunner().invoke(main, ["pipeline", *map(str, arguments)], **more)


def quality(broker: Broker, topic: str, folder: Path, *more: str) -> Result:
    given = (
        "--topic",
        topic,
        "--schema",
        SCHEMA,
        "--dead-letters",
        f"{topic}-dead",
        "--checkpoint",
        folder / "checkpoint",
    )
    return invoke("quality", "-n", broker.name_server, *given, *more)


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_every_pipeline_is_a_command_with_its_settings_as_flags() -> None:
    listed, help_text = invoke("--help").output, invoke("quality", "--help").output

    assert all(name in listed for name in ("quality", "trace", "lag-report", "new", "run"))
    assert "--max-messages NUMBER" in help_text
    assert "[default: 500000]" in help_text
    assert "--continuous / --once" in help_text
    assert "NAMESRV_ADDR" in help_text


def test_an_unknown_command_is_reported_with_the_nearest_one() -> None:
    result = invoke("qualty")

    assert result.exit_code == ExitCode.USAGE
    assert "Did you mean 'quality'?" in result.output


def test_an_impossible_setting_is_refused_before_spark_starts(tmp_path: Path) -> None:
    config = tmp_path / "q.toml"
    config.write_text('topics = ["orders"]\nchekpoint = "/c"\n', "utf-8")

    wrong_key = invoke("quality", "--config", config)
    wrong_value = invoke("quality", "--max-messages", "none")
    missing = invoke("quality", "--topic", "orders")

    assert [result.exit_code for result in (wrong_key, wrong_value, missing)] == [ExitCode.USAGE] * 3
    assert "unknown key 'chekpoint' for quality; did you mean checkpoint?" in wrong_key.output
    assert "needs the flag --schema and --dead-letters" in missing.output


def test_a_dry_run_shows_the_plan_as_a_table_or_as_json(broker: Broker, tmp_path: Path) -> None:
    topic = new_topic(broker)
    fill(broker, topic, ["a", "b", "c"])

    table, plan = quality(broker, topic, tmp_path, "--dry-run"), quality(broker, topic, tmp_path, "--dry-run", "--json")

    assert table.exit_code == plan.exit_code == ExitCode.OK
    assert "3 in 2 queues now" in table.output
    assert "Nothing changed." in table.output
    [told] = rows(plan.output)
    assert (told["kind"], told["messages"], told["pipeline"]) == ("plan", 3, "quality")


def test_a_dry_run_reports_a_missing_topic(broker: Broker, tmp_path: Path) -> None:
    result = quality(broker, "not-there", tmp_path, "--dry-run")

    assert result.exit_code == ExitCode.REFUSED
    assert "topic 'not-there' does not exist. `pocketmq topic ls` lists the topics" in result.output


def test_a_dry_run_with_chosen_columns_checks_them_with_spark(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    topic = new_topic(broker)
    given = ("archive", "-n", broker.name_server, "--topic", topic, "--path", f"file://{tmp_path}/lake", "--dry-run")

    good = invoke(*given, "--select", "string(value) AS text", "--where", "tags = 'paid'")
    wrong = invoke(*given, "--select", "colour")
    table = invoke(*given[:5], "--table", "no.such.table", "--checkpoint", tmp_path / "notes", "--dry-run")

    assert good.exit_code == ExitCode.OK, good.output
    assert f"parquet files in {tmp_path}/lake, by topic and day, with --engine spark" in good.output
    assert "string(value) AS text" in good.output
    assert "Nothing changed." in good.output
    assert not (tmp_path / "lake").exists()
    assert wrong.exit_code == table.exit_code == ExitCode.USAGE
    assert "--select colour" in wrong.output
    assert "the catalog no is not configured" in table.output


def test_impossible_settings_are_reported_before_spark_starts(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(broker)
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rules]]\ncolumn = "id"\nmaxx = 5\n', "utf-8")
    monkeypatch.setattr("pocketmq.pipelines.session", lambda *given, **more: pytest.fail("Spark starts"))
    there = ("-n", broker.name_server, "--topic", topic)

    rule = quality(broker, topic, tmp_path, "--config", str(rules))
    archive = invoke("archive", "-n", broker.name_server, "--topic", "nope", "--lake", tmp_path / "lake")
    target = invoke("backfill", *there, "--to", "nope", "--checkpoint", tmp_path / "b")
    itself = invoke("mirror", *there, "--target", broker.name_server, "--checkpoint", tmp_path / "m")
    group = invoke("lag-report", "-n", broker.name_server, "--group", "nope")

    assert "unknown key 'maxx'; did you mean max?" in rule.output
    assert "topic 'nope' does not exist" in archive.output
    assert "`pocketmq topic create nope` creates it" in target.output
    assert "is the source cluster" in itself.output
    assert "group 'nope' does not exist" in group.output
    assert not list(tmp_path.glob("[!r]*"))


def test_an_sql_expression_is_not_split_at_its_commas(broker: Broker, tmp_path: Path) -> None:
    source, target = new_topic(broker), new_topic(broker)
    where = ("-n", broker.name_server, "--topic", source, "--to", target, "--checkpoint", tmp_path / "c")

    result = invoke(
        "replay", *where, "--select", "concat(value, '!') AS value", "--select", "keys", "--dry-run", "--json"
    )

    assert rows(result.output)[0]["options"]["select"] == "concat(value, '!') AS value, keys"
    assert split_settings() == {"topics", "groups", "keys", "partition_by"}


def split_settings() -> set[str]:
    """Lists whose flags may name several at once: only names, which have no commas."""
    settings = [setting for job in pipelines.JOBS.values() for setting in pipelines.settings_of(job.settings)]
    return {
        setting.name for setting in settings if setting.is_list and setting.is_flag and setting.extra.get("split", True)
    }


def test_a_dry_run_fails_if_the_run_would_fail(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, other = new_topic(broker), new_topic(broker)
    (tmp_path / "file").write_text("", "utf-8")
    (tmp_path / "theirs" / "offsets").mkdir(parents=True)
    (tmp_path / "theirs" / "metadata").write_text("{}", "utf-8")
    monkeypatch.setattr("pocketmq.pipelines.session", lambda *given, **more: pytest.fail("Spark starts"))
    read = ("-n", broker.name_server, "--topic", topic)
    theirs = ("--checkpoint", tmp_path / "theirs")
    quality_of = ("quality", *read, "--schema", SCHEMA, "--dead-letters", f"{topic}-dead")

    def told(*arguments: str | Path) -> str:
        dry, real = invoke(*arguments, "--dry-run"), invoke(*arguments)
        assert (dry.exit_code, dry.output) == (real.exit_code, real.output)
        assert dry.exit_code != ExitCode.OK
        assert "Traceback" not in dry.output
        return dry.output

    assert "--lake s3a://b/lake: a rename on s3a: is not atomic" in told("archive", *read, "--lake", "s3a://b/lake")
    assert "--format xyz: Spark does not have this format" in told(
        "archive", *read, "--lake", tmp_path / "l", "--format", "xyz"
    )
    assert "--format text has one column" in told("archive", *read, "--lake", tmp_path / "l", "--format", "text")
    assert "file/l is not writable" in told("archive", *read, "--lake", tmp_path / "file" / "l")
    assert "/proc/nope is not writable" in told("archive", *read, "--lake", "/proc/nope")
    assert "is a file; it must be a folder" in told("archive", *read, "--lake", tmp_path / "file")
    assert "belongs to a query that is not a pipeline" in told("archive", *read, "--lake", tmp_path / "l", *theirs)
    assert "--lake s3a://b/lake: a rename on s3a: is not atomic" in told(
        "backfill", *read, "--lake", "s3a://b/lake", *theirs
    )
    assert "belongs to a query that is not a pipeline" in told("backfill", *read, "--to", other, *theirs)
    assert "belongs to a query that is not a pipeline" in told("replay", *read, "--to", other, *theirs)
    assert "is not a lake" in told(
        "replay", *read, "--lake", tmp_path / "no", "--to", other, "--checkpoint", tmp_path / "c"
    )
    assert "belongs to a query that is not a pipeline" in told(*quality_of, *theirs)
    assert "belongs to a query that is not a pipeline" in told("trace", *read, "--lake", tmp_path / "l", *theirs)
    assert "use --master and a local" in told("mirror", *read, "--target", "127.0.0.1:1", "--checkpoint", "s3a://b/c")
    assert "is not a Spark master" in told(*quality_of, "--checkpoint", tmp_path / "c", "--master", "locl")
    assert not (tmp_path / "l").exists()


def test_a_run_prints_its_progress_and_summary(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    topic = new_topic(broker)
    fill(broker, topic, ['{"id": "a"}', "oh"])

    result = quality(broker, topic, tmp_path, "--json", "--metrics-port", "0")

    assert result.exit_code == ExitCode.OK
    told = rows(result.output)
    assert told[0]["kind"] == "progress"
    assert told[-1]["kind"] == "summary"
    assert (told[-1]["messages"], told[-1]["facts"]["dead_letters"]) == (2, 1)
    other = quality(broker, topic, tmp_path, "--good", f"{topic}-good")
    assert other.exit_code == ExitCode.REFUSED
    assert "belongs to quality of" in other.output


def test_a_new_project_has_all_files_and_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    made, again, odd = invoke("new", "shop"), invoke("new", "shop"), invoke("new", "../x")

    assert (made.exit_code, again.exit_code, odd.exit_code) == (ExitCode.OK, ExitCode.USAGE, ExitCode.USAGE)
    assert "pocketmq pipeline run --broker" in made.output
    assert "exists; choose another name" in again.output
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert {"shop/README.md", "shop/transformations/orders.py", "shop/tests/test_pipeline.py"} <= found
    spec = (tmp_path / "shop" / "spark-pipeline.yml").read_text("utf-8")
    assert f"storage: file://{tmp_path}/shop/.data/storage" in spec


def test_a_folder_without_a_project_is_reported(tmp_path: Path) -> None:
    result = invoke("run", "--project", tmp_path)

    assert result.exit_code == ExitCode.USAGE
    assert "pocketmq pipeline new NAME" in result.output


def test_a_run_of_a_project_has_a_broker_with_the_sample_and_the_exit_status_of_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark-pipeline.yml").write_text("name: x", "utf-8")
    (tmp_path / "sample").mkdir()
    (tmp_path / "sample" / "orders.jsonl").write_text("{}\n\n{}\n", "utf-8")
    monkeypatch.setattr(running, "_NEEDED", ())
    seen = []

    def run_project(folder: Path, arguments: tuple[str, ...], *, name_server: str, **more: Any) -> Done:
        seen.append((folder, arguments, name_server))
        more["show"]("Flow orders is RUNNING.")
        return Done(7, ["a stack", "of lines"])

    monkeypatch.setattr("pocketmq.pipelines.run_project", run_project)
    first = invoke("run", "--project", tmp_path, "--broker", "--", "--full-refresh-all")
    second = invoke("run", "--project", tmp_path, "--broker")

    assert first.exit_code == second.exit_code == 7
    assert "created topic orders with 2 messages" in first.output
    assert "made the topic" not in second.output
    assert "of lines" in first.output
    assert seen[0][1] == ("--full-refresh-all",)
    assert seen[0][2] in first.output

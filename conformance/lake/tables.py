"""Archives into tables, for each version of PySpark that the library of a format is for: every check is a test of `table_checks`.

PySpark of a version is installed below .venv-spark, which is kept; Spark gets the libraries from Maven Central.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from tests.spark.versions import environment

from conformance.apache import ROOT
from conformance.report import Scenario, Trial
from pocketmq.pipelines.core.sessions import LIBRARIES

COLUMNS: Final = tuple(
    f"{name.capitalize()}, Spark {version}" for name, library in LIBRARIES.items() for version in library.packages
)
RUN_S: Final = 3600
FETCH_S: Final = 300

TESTS: Final = {
    "each message once, in two runs": "test_an_archive_writes_each_message_once_and_continues",
    "a deleted checkpoint": "test_a_deleted_checkpoint_adds_no_row_twice",
    "a batch that runs again": "test_a_batch_that_failed_behind_its_commit_is_not_written_again",
    "a driver killed between commit and checkpoint": "test_a_driver_that_was_killed_behind_a_commit_is_continued",
    "three writers at the same time": "test_two_archives_into_one_table_write_each_message_once",
    "files and commits by offset, key and time": "test_files_and_commits_are_found_by_offset_key_and_time",
    "missing offsets": "test_what_is_missing_is_found",
    "a part of a batch, with few columns": "test_a_part_of_a_batch_is_written_with_few_columns",
    "compaction and expiry": "test_compaction_and_expiry_keep_rows_and_record",
    "replay as of a commit": "test_a_table_is_replayed_as_it_was_with_keys_tags_properties_and_order",
    "a replay as of a time that is continued": "test_a_replay_that_is_continued_reads_the_commit_of_its_first_run",
    "a table that was restored": "test_a_table_that_was_restored_gets_its_later_messages_again",
    "a table with another schema": "test_another_schema_is_refused_and_nothing_is_written",
}


def unable(column: str) -> str:
    """Why nothing can be run here; empty when it can."""
    name, version = _parts(column)
    library = LIBRARIES[name].packages[version]
    maven = shutil.which("mvn")
    if maven is None:
        return "Maven is not installed"
    command = [maven, "--batch-mode", "--quiet", "dependency:get", f"-Dartifact={library}", "-Dtransitive=false"]
    if subprocess.run(command, capture_output=True, timeout=FETCH_S, check=False).returncode:
        return f"Maven cannot fetch {library}"
    return ""


def _parts(column: str) -> tuple[str, str]:
    """The format and the version of Spark."""
    name, _, version = column.partition(", Spark ")
    return name.lower(), version


def _run(trial: Trial) -> None:
    name, version = _parts(trial.version)
    failed = _failures(name, version, trial.folder / "report.xml")
    for check, test in TESTS.items():
        trial.expect(check, failed.get(test, ["it was not run"]))


def _failures(name: str, version: str, report: Path) -> Mapping[str, list[str]]:
    """What failed, by test; a test that passed has an empty list."""
    report.parent.mkdir(parents=True, exist_ok=True)
    python = environment(version)
    command = [
        str(python),
        "-m",
        "pytest",
        "--quiet",
        "-p",
        "no:cacheprovider",
        "--timeout",
        "1200",
        "-o",
        "faulthandler_timeout=0",
    ]
    # PySpark 4.1 leaves its Unix sockets to the garbage collector, which would fail the test that runs then.
    command += [
        f"--junitxml={report}",
        "-W",
        "default::pytest.PytestUnraisableExceptionWarning",
        "conformance/lake/table_checks.py",
    ]
    environ = {key: text for key, text in os.environ.items() if not key.startswith(("PYSPARK_", "SPARK_HOME"))}
    environ["LAKE_FORMAT"] = name
    subprocess.run(command, cwd=ROOT, env=environ, check=False, timeout=RUN_S, stdout=subprocess.DEVNULL)
    found: dict[str, list[str]] = {}
    for case in ET.parse(report).iter("testcase"):
        flaws = found.setdefault(str(case.get("name")), [])
        for kind in ("failure", "error", "skipped"):
            if (said := case.find(kind)) is not None:
                flaws.append(said.get("message", kind))
    return found


SCENARIOS: Final = (Scenario("tables", tuple(TESTS), _run),)

"""Archives and changes into tables, for each version of PySpark that the library of a format is for.

Every check is a test of `table_checks`, or of `change_checks`, which makes changes as Debezium sends them.

PySpark of a version is installed below .venv-spark, which is kept; Spark gets the libraries from Maven Central.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
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

CHANGES: Final = {
    "rows as in the database after each run": "test_rows_are_those_of_the_database_after_each_run",
    "changes twice and in any order": "test_changes_may_come_in_any_order_and_twice[1]",
    "versions of rows, in any order": "test_changes_may_come_in_any_order_and_twice[2]",
    "a transaction that was open during the snapshot": "test_changes_of_transactions_that_were_open_come_behind_the_snapshot",
    "a changed key": "test_a_key_that_changed_is_another_row",
    "an added column": "test_a_column_that_was_added_is_in_the_table",
    "JSON without a schema": "test_changes_without_a_schema_are_merged",
    "Avro of a schema registry": "test_changes_in_avro_are_merged",
    "a large value that was not logged": "test_a_value_that_was_not_logged_stays",
    "a deleted checkpoint of changes": "test_a_deleted_checkpoint_does_no_work_twice",
    "a failure behind the merge": "test_a_batch_that_failed_behind_its_merge_is_not_merged_again",
    "a failure between deletions and merge": "test_a_batch_that_failed_before_its_merge_is_merged",
    "an unknown envelope": "test_a_bad_message_fails_the_run_or_is_a_dead_letter[unknown envelope]",
    "a message without key": "test_a_bad_message_fails_the_run_or_is_a_dead_letter[no key]",
    "a value of another type": "test_a_bad_message_fails_the_run_or_is_a_dead_letter[a value of another type]",
    "a table with other types": "test_a_table_with_other_columns_is_refused_and_nothing_is_written",
    "other keys, versions or database": "test_a_table_that_was_merged_otherwise_is_refused",
    "old deletions": "test_keys_of_deleted_rows_are_forgotten_later",
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


def _checked(tests: Mapping[str, str], file: str) -> Callable[[Trial], None]:
    def run(trial: Trial) -> None:
        name, version = _parts(trial.version)
        failed = failures(version, trial.folder / "report.xml", file, LAKE_FORMAT=name)
        for check, test in tests.items():
            trial.expect(check, failed.get(test, ["it was not run"]))

    return run


def failures(version: str, report: Path, file: str, **variables: str) -> Mapping[str, list[str]]:
    """What failed of a file of tests with a version of PySpark, by test; a test that passed has an empty list."""
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
        file,
    ]
    environ = {key: text for key, text in os.environ.items() if not key.startswith(("PYSPARK_", "SPARK_HOME"))}
    subprocess.run(
        command, cwd=ROOT, env={**environ, **variables}, check=False, timeout=RUN_S, stdout=subprocess.DEVNULL
    )
    found: dict[str, list[str]] = {}
    for case in ET.parse(report).iter("testcase"):
        flaws = found.setdefault(str(case.get("name")), [])
        for kind in ("failure", "error", "skipped"):
            if (said := case.find(kind)) is not None:
                flaws.append(said.get("message", kind))
    return found


SCENARIOS: Final = (
    Scenario("tables", tuple(TESTS), _checked(TESTS, "conformance/lake/table_checks.py")),
    Scenario("changes", tuple(CHANGES), _checked(CHANGES, "conformance/lake/change_checks.py")),
)

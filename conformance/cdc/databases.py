"""Changes of a real PostgreSQL by a real Debezium into tables, through each broker: every check is a test of `row_checks`."""

from typing import Final

from conformance import apache
from conformance.cdc import database, debezium
from conformance.lake.tables import failures
from conformance.report import Scenario, Trial

SPARK: Final = "4.1"
"""The newest version that Delta and Iceberg have libraries for."""
COLUMNS: Final = ("PocketMQ, Delta", "PocketMQ, Iceberg", "5.3.3, Delta", "5.3.3, Iceberg")

TESTS: Final = {
    "the snapshot, with columns of fifteen types": "test_the_snapshot_has_all_rows",
    "inserts, updates and deletes": "test_inserts_updates_and_deletes_arrive",
    "keys that change": "test_keys_that_change_are_other_rows",
    "an added column": "test_an_added_column_is_added_to_the_table",
    "a killed Debezium": "test_a_killed_debezium_continues",
    "a killed driver of Spark": "test_a_killed_driver_continues",
    "a restarted broker": "test_a_broker_that_was_restarted_is_continued",
    "a deleted checkpoint": "test_a_deleted_checkpoint_does_no_work_twice",
}


def unable(column: str) -> str:
    """Why nothing can be run here; empty when it can."""
    if database.programs() is None:
        return "PostgreSQL is not installed"
    if debezium.java() is None:
        return f"Debezium Server needs Java {debezium.NEEDED_JAVA}"
    broker, _ = column.split(", ")
    return debezium.fetch() or ("" if broker == "PocketMQ" else apache.unable(broker))


def _run(trial: Trial) -> None:
    broker, kind = trial.version.split(", ")
    variables = {"CDC_BROKER": broker, "LAKE_FORMAT": kind.lower()}
    failed = failures(SPARK, trial.folder / "report.xml", "conformance/cdc/row_checks.py", **variables)
    for check, test in TESTS.items():
        trial.expect(check, failed.get(test, ["it was not run"]))


SCENARIOS: Final = (Scenario("PostgreSQL by Debezium", tuple(TESTS), _run),)

"""docs/reference/spark.md says what is there: every column and every option, with its default, and nothing else."""

from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from pocketmq.spark import schema
from pocketmq.spark.options.connection_options import CONNECTION_OPTIONS
from pocketmq.spark.options.options import OptionTable
from pocketmq.spark.options.read_options import READ_OPTIONS
from pocketmq.spark.options.write_options import WRITE_OPTIONS
from pocketmq.spark.write import sink_rows

DOCUMENT = (Path(__file__).parents[2] / "docs" / "reference" / "spark.md").read_text("utf-8")
SHARED = OptionTable(CONNECTION_OPTIONS)


def rows_below(heading: str) -> list[str]:
    """The rows of the table in a section, without its head."""
    section = DOCUMENT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("|")][2:]


def own_rows(table: OptionTable) -> list[str]:
    shared = set(SHARED.markdown_rows())
    return [row for row in table.markdown_rows() if row not in shared]


def test_every_column_is_there() -> None:
    assert rows_below("Columns of a read") == schema.markdown_table()
    assert rows_below("Columns of a write") == sink_rows.markdown_table()


def test_every_option_is_there_with_its_default() -> None:
    assert rows_below("Options for reading and writing") == SHARED.markdown_rows()
    assert rows_below("Options of a read") == own_rows(READ_OPTIONS)
    assert rows_below("Options of a write") == own_rows(WRITE_OPTIONS)


def test_no_row_of_a_table_has_a_cell_too_many() -> None:
    for heading in ("Options for reading and writing", "Options of a read", "Options of a write"):
        assert {row.replace("\\|", "").count("|") for row in rows_below(heading)} == {7}

"""Running a project: the output of spark-pipelines, its exit code, and the content of the tables. The program is a
stand-in.
"""

import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

import pyarrow.parquet

from pocketmq.errors import InvalidSetting, MissingLibrary
from pocketmq.files import DiskFiles
from pocketmq.pipelines.project import running
from pocketmq.pipelines.project.running import check_project, run_project, table_rows
from pocketmq.spark.arrow import pa

SCRIPT = """
echo "WARNING: of Java"
echo "2026-03-01 12:00:00: Flow spark_catalog.default.orders is RUNNING."
echo "$@ $NAMESRV_ADDR $PYSPARK_PYTHON"
exit 5
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "spark-pipelines").write_text(SCRIPT, "utf-8")
    monkeypatch.setattr(running, "pyspark_folder", lambda: tmp_path)
    monkeypatch.setattr(running, "find_java", lambda: tmp_path / "java")
    return tmp_path


def test_events_are_shown_other_output_is_kept_and_the_exit_code_returned(stand_in: Path) -> None:
    told: list[str] = []

    done = run_project(stand_in, ["--x"], name_server="ns:1", show=told.append)

    assert told == ["Flow spark_catalog.default.orders is RUNNING."]
    assert done.code == 5
    assert done.besides[0] == "WARNING: of Java"
    assert done.besides[1].startswith("run --conf spark.sql.catalogImplementation=hive --conf ")
    assert done.besides[1].endswith(f"--spec {stand_in}/spark-pipeline.yml --x ns:1 {sys.executable}")


def test_with_verbose_all_output_is_shown(stand_in: Path) -> None:
    told: list[str] = []

    done = run_project(stand_in, [], name_server="ns:1", show=told.append, everything=True)

    assert len(told) == 3
    assert done.besides == []


def test_a_folder_without_a_project_and_a_missing_library_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidSetting, match=r"has no spark-pipeline\.yml"):
        check_project(tmp_path, DiskFiles())
    (tmp_path / "spark-pipeline.yml").write_text("", "utf-8")
    monkeypatch.setattr(running, "_NEEDED", ("no_such_library.at_all",))
    with pytest.raises(MissingLibrary, match=r"pip install 'pyspark\[pipelines\]'"):
        check_project(tmp_path, DiskFiles())


def test_the_rows_of_tables_are_counted_and_the_first_are_shown(tmp_path: Path) -> None:
    folder = tmp_path / "spark-warehouse" / "orders"
    folder.mkdir(parents=True)
    (tmp_path / "spark-warehouse" / "empty").mkdir()
    for part in range(2):
        pyarrow.parquet.write_table(pa.table({"n": list(range(part, part + 4))}), folder / f"{part}.parquet")

    found = table_rows(tmp_path, DiskFiles())

    assert list(found) == ["orders"]
    assert (found["orders"].total, [row["n"] for row in found["orders"].rows]) == (8, [0, 1, 2, 3, 1])

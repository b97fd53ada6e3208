"""The store's benchmarks run, at a size without meaning: every section, its peers, its goals, and its files are
removed.
"""

import subprocess
import sys
from contextlib import closing, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from bench.method import machine
from bench.store.__main__ import SECTIONS, file_system, main, missing_space
from bench.store.apart import apart, memory
from bench.store.appending import BODIES, TURNS
from bench.store.hosted import HostedStore
from bench.store.messages import TOPIC, drafts, in_turns, key_of
from bench.store.peers import SqliteKeys, SqliteQueues
from bench.store.rows import Row, shown, verdict
from bench.store.scale import FULL, GIB, QUICK, Scale
from bench.store.starting import timed_start, write_log

ROOT = Path(__file__).parents[1]
TINY = Scale(
    name="tiny",
    disk_bytes=1,
    read_messages=512,
    index_entries=200,
    look_ups=2,
    start_bytes=100_000,
    starts=1,
    topics=2,
    log_marks=(3_000_000,),
    queue_counts=(3,),
)
FAST = ["--rounds", "1", "--round-ms", "0.01"]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output of a complete run; its files are removed afterwards."""
    folder = tmp_path_factory.mktemp("bench")
    with redirect_stdout(StringIO()) as out:
        main([*FAST, "--folder", str(folder)], quick=TINY)

    assert list(folder.iterdir()) == []
    return out.getvalue()


def test_every_size_of_turn_and_body_is_printed_beside_its_peers(printed: str) -> None:
    assert machine() in printed
    for body_bytes in BODIES:
        for turn in TURNS:
            assert f"append {body_bytes} B, turns of {turn}" in printed
            assert f"synced append {body_bytes} B, turns of {turn}" in printed
    for peer in (
        "sqlite3, WAL, NORMAL",
        "sqlite3, WAL, FULL",
        "os.pwrite",
        "os.fdatasync",
        "os.pread",
        "transient pool",
    ):
        assert peer in printed


@pytest.mark.parametrize(
    ("subject", "aim"),
    [
        ("append 100 B, turns of 64", "≤ 2"),
        ("index of one key", "≤ 1"),
        ("read 32 of 1 queue", "≤ 1"),
        ("read 32 of 8 queues", "≤ 1"),
        ("clean start, log of", "≤ 2"),
        ("clean start, with index", "≤ 2"),
        ("rebuild of all queues", "≤ 2.5"),
        ("memory of one of 8 queues", "≤ 3"),
        ("append to 3 queues", "≤ 1.2"),
        ("append to a log of", "≤ 1.2"),
    ],
)
def test_every_goal_is_shown_beside_its_row_as_met_or_missed(printed: str, subject: str, aim: str) -> None:
    (line,) = [line for line in printed.splitlines() if line.startswith(f"│ {subject}")]

    assert f" {aim} " in line
    assert " ok " in line or " over " in line


@pytest.mark.parametrize(
    "subject",
    [
        "append 100 B, batches of 32",
        "append 1024 B, batches of 32",
        "offset by time",
        "index of two keys",
        "append, sustained",
        "search by key",
        "crashed start, log of",
        "store rebuild",
        "store verify",
        "write of 8 queues",
        "memory, log of",
    ],
)
def test_rows_without_a_goal_are_printed_too(printed: str, subject: str) -> None:
    assert f"│ {subject}" in printed


def test_arguments_select_sections_and_the_module_runs_as_a_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.store", "index", *FAST, "--folder", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr
    assert "index of two keys" in done.stdout
    assert "append" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing is called so"], ", ".join(SECTIONS)),
        (["--rounds", "0"], "at least one round"),
        (["--folder", "nowhere/at/all"], "is not a folder"),
    ],
)
def test_a_run_without_measurements_is_refused(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)

    assert sentence in " ".join(capsys.readouterr().err.split())


def test_a_disk_without_enough_space_is_refused_with_both_sizes(tmp_path: Path) -> None:
    assert missing_space(tmp_path, TINY) == ""
    assert "needs 1048576.0 GiB" in missing_space(tmp_path, TINY._replace(disk_bytes=2**20 * GIB))
    assert "leave out --full" not in missing_space(tmp_path, QUICK._replace(disk_bytes=2**20 * GIB))


def test_the_quick_run_is_small_and_the_full_run_has_its_documented_size() -> None:
    assert QUICK.disk_bytes <= 3 * GIB
    assert FULL.start_bytes == 4 * GIB
    assert FULL.log_marks[-1] == 20 * GIB
    assert FULL.index_entries == 10_000_000
    assert FULL.topics * 4 == 40_000
    assert FULL.queue_counts[-1] == 10_000


def test_a_process_that_does_not_close_its_store_has_crashed(tmp_path: Path) -> None:
    count = apart(write_log, tmp_path / "store", 100_000)

    crashed = apart(timed_start, tmp_path / "store", True)
    clean = apart(timed_start, tmp_path / "store", True)

    assert crashed.records == count
    assert clean.records == 0


def test_messages_without_space_are_stored_in_a_later_turn(tmp_path: Path) -> None:
    small_pool = {"transient_pool": True, "pool_buffers": 2, "pool_buffer_bytes": 1024}
    with HostedStore(tmp_path / "store", **small_pool) as hosted:
        hosted.append(in_turns(hosted.queues(1), drafts(64, 100), 64))
        hosted.rest()

        assert hosted.store.max_offset(TOPIC, 0) == 64
        assert hosted.store.find_by_key(TOPIC, key_of(63), 1)[0].queue_offset == 63


def test_sqlite_returns_the_stored_messages(tmp_path: Path) -> None:
    with (
        closing(SqliteQueues(tmp_path / "queues", "FULL", 2)) as queues,
        closing(SqliteKeys(tmp_path / "keys")) as keys,
    ):
        queues.append([drafts(4, 100), drafts(4, 100, 4)])
        queues.index_times()
        keys.add([("a", 1), ("b", 2), ("a", 3)])

        assert [offset for offset, _, _ in queues.read(1, 1, 2)] == [1, 2]
        assert queues.read(1, 1, 1)[0][1] == drafts(1, 100, 3)[0][0]
        assert keys.find("a") == [1, 3]


def test_memory_and_file_system_are_reported(tmp_path: Path) -> None:
    assert memory().own > 2**20
    assert file_system(tmp_path) != "an unknown file system"


def test_a_goal_is_met_up_to_its_number_by_the_median() -> None:
    row = Row("s", "c", median=2.0, least=1.0, unit="us", aim=2.0)

    assert "ok" in verdict(row)
    assert "over" in verdict(row._replace(median=2.01))
    assert [shown(value) for value in (None, 0.123, 123.4, 12345.6)] == ["", "0.12", "123.4", "12,346"]

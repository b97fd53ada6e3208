"""`pocketmq store` as a user runs it: its output and its exit codes."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.golden import GOLDEN, needs_golden
from tests.store.golden_store import STORES, restore
from tests.store.made_store import MadeStore

from pocketmq.cli import main
from pocketmq.cli import store as commands
from pocketmq.files import DiskFiles

SRC = Path(__file__).parents[2] / "src"


def run(*args: object, text_in: str | None = None) -> Result:
    return CliRunner().invoke(main, [str(arg) for arg in args], input=text_in)


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sound store on the real disk."""
    MadeStore().fill().files.materialise(tmp_path)
    return tmp_path / "store"


def flip(path: Path, at: int) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


# verify


def test_a_valid_store_is_reported_as_sound(folder: Path) -> None:
    result = run("store", "verify", folder)

    assert result.exit_code == 0
    assert "46 messages of 4 queues" in result.stdout
    assert result.stdout.endswith("Sound: log, queues, index and tables agree.\n")


def test_a_derived_file_that_differs_is_repairable(folder: Path) -> None:
    flip(folder / "consumequeue/Orders/0/00000000000000000000", 5)

    result = run("store", "verify", folder)

    assert result.exit_code == 1
    assert "repairable" in result.stdout
    assert "consumequeue/Orders/0/00000000000000000000" in result.stdout
    assert "bytes 0 to 20" in result.stdout
    assert f"`pocketmq store rebuild {folder}` rebuilds them." in result.stdout.replace("\n", " ")


def test_damage_in_the_log_is_damage(folder: Path) -> None:
    flip(folder / "commitlog/00000000000000000000", 90)

    result = run("store", "verify", folder)

    assert result.exit_code == 2
    assert "log-record: no valid record from log offset 0 to 201" in result.stdout
    assert "Damaged:" in result.stdout


def test_notes_do_not_change_the_verdict_sound(folder: Path) -> None:
    (folder / "notes [draft].txt").write_text("mine")

    result = run("store", "verify", folder)

    assert result.exit_code == 0
    assert "notes [draft].txt" in result.stdout
    assert result.stdout.endswith("agree (1 note).\n")


def test_findings_as_json_are_one_per_line_with_a_summary_at_the_end(folder: Path) -> None:
    flip(folder / "commitlog/00000000000000000000", 90)

    result = run("store", "verify", "--json", folder)

    *findings, summary = lines(result)
    assert findings == [
        {
            "type": "finding",
            "severity": "damage",
            "kind": "log-record",
            "path": "commitlog/00000000000000000000",
            "text": "no valid record from log offset 0 to 201: a wrong body checksum",
            "begin": 0,
            "end": 201,
        }
    ]
    assert (summary["type"], summary["verdict"], summary["exit_code"]) == ("summary", "damaged", 2)
    assert summary["findings"] == {"log-record": 1}
    assert result.exit_code == 2


def test_many_findings_are_shown_up_to_a_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pocketmq.cli.store.MAX_LISTED", 2)
    for name in "abcde":
        (folder / name).write_text("mine")

    shown = run("store", "verify", folder)
    as_json = run("store", "verify", "--json", folder)

    assert "3 more findings; --json shows all" in shown.stdout
    assert len(lines(as_json)) == 6


def test_the_index_can_be_skipped(folder: Path) -> None:
    for path in (folder / "index").iterdir():
        path.unlink()

    assert run("store", "verify", folder).exit_code == 1
    assert run("store", "verify", "--no-index", folder).exit_code == 0


@needs_golden
@pytest.mark.parametrize(("version", "kind"), STORES)
def test_stores_of_apaches_broker_are_sound(version: str, kind: str, tmp_path: Path) -> None:
    restore(version, kind, tmp_path)

    assert run("store", "verify", tmp_path).exit_code == 0


# errors in plain words


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    result = run("store", "verify", tmp_path / "nowhere")

    assert result.exit_code == 3
    assert result.stderr == f"pocketmq: there is no folder {tmp_path / 'nowhere'}\n"


@pytest.mark.parametrize("command", ["verify", "dump", "rebuild"])
def test_a_folder_that_is_not_a_store_is_reported(command: str, tmp_path: Path) -> None:
    result = run("store", command, tmp_path)

    assert result.exit_code == 3
    assert "is not a store: it has none of commitlog, consumequeue, checkpoint" in result.stderr


def test_sizes_that_do_not_match_are_reported(folder: Path) -> None:
    result = run("store", "verify", "--log-file-bytes", 1000, folder)

    assert result.exit_code == 64
    assert "no log file of this store has 1000 bytes" in result.stderr


class ForbiddenFiles(DiskFiles):
    def list(self, folder: Path) -> list[str]:
        raise PermissionError(13, "Permission denied", str(folder))


def test_an_unreadable_folder_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "FILES", ForbiddenFiles())

    result = run("store", "verify", folder)

    assert result.exit_code == 3
    assert result.stderr == f"pocketmq: {folder}: Permission denied. Run the command as the owner of the file\n"


def test_an_unknown_option_is_reported_with_the_nearest_name(folder: Path) -> None:
    result = run("store", "verify", "--jsn", folder)

    assert result.exit_code == 64
    assert "--jsn" in result.stderr
    assert "--json" in result.stderr


def test_an_unknown_command_is_reported_with_the_nearest_name_or_all() -> None:
    near, far = run("store", "verfy"), run("store", "xyz")

    assert near.exit_code == far.exit_code == 64
    assert "No such command 'verfy'. Did you mean 'verify'?" in near.stderr
    assert "Commands: dump, rebuild, verify." in far.stderr


# dump


def test_messages_are_dumped_as_a_table(folder: Path) -> None:
    result = run("store", "dump", folder, "--limit", 2)

    head, *rows = result.stdout.splitlines()
    assert head.split() == [
        "log",
        "offset",
        "topic",
        "queue",
        "queue",
        "offset",
        "stored",
        "tags",
        "keys",
        "size",
        "body",
    ]
    assert rows[0].split()[:4] == ["0", "Orders", "0", "0"]
    assert len(rows) == 2


def test_messages_are_dumped_as_json_lines(folder: Path) -> None:
    found = lines(run("store", "dump", folder, "--json"))

    assert len(found) == 46
    assert found[0]["topic"] == "Orders"
    assert found[0]["keys"] == ["k0", "all"]
    assert found[0]["body"] == "a body that is long enough to be flipped"


def test_a_topic_is_dumped_in_the_order_of_its_queues(folder: Path) -> None:
    found = lines(run("store", "dump", folder, "--topic", "Orders", "--fields", "queue,queue_offset", "--json"))

    assert found == [{"queue": queue, "queue_offset": offset} for queue in (0, 1) for offset in range(15)]


def test_a_topic_can_be_dumped_in_log_order(folder: Path) -> None:
    found = lines(run("store", "dump", folder, "--topic", "Orders", "--order", "log", "--json"))

    offsets = [message["log_offset"] for message in found]
    assert offsets == sorted(offsets)
    assert len(offsets) == 33  # with the half messages, which are in no queue


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (["--key", "k7"], 1),
        (["--keys", "all"], 30),
        (["--tag", "tag1"], 10),
        (["--from-offset", 8000], 4),
        (["--to-offset", 400], 3),
        (["--topic", "Orders", "--queue", 1, "--from-offset", 3, "--to-offset", 5], 2),
        (["--limit", 0], 0),
    ],
)
def test_dumped_messages_can_be_selected(folder: Path, options: list[object], count: int) -> None:
    assert len(lines(run("store", "dump", folder, "--json", *options))) == count


def test_a_dump_continues_after_damage_and_reports_it(folder: Path) -> None:
    flip(folder / "commitlog/00000000000000000000", 90)

    result = run("store", "dump", folder, "--json")

    assert len(lines(result)) == 45
    assert result.stderr.startswith("skipped: no valid record from log offset 0 to 201")
    assert result.exit_code == 2


def test_an_unknown_field_is_reported_with_the_nearest_name(folder: Path) -> None:
    result = run("store", "dump", folder, "--fields", "tag")

    assert result.exit_code == 64
    assert "messages have no field 'tag'; did you mean tags?" in result.stderr


def test_a_topic_without_queues_is_reported_with_advice(folder: Path) -> None:
    result = run("store", "dump", folder, "--topic", "Nothing")

    assert result.exit_code == 3
    assert "dump in log order, or rebuild the queues" in result.stderr


@needs_golden
def test_bodies_of_apaches_store_are_decompressed(tmp_path: Path) -> None:
    restore("5.3.3", "clean", tmp_path)
    expected = json.loads((GOLDEN / "store" / "5.3.3" / "expected.json").read_text())

    found = {row["log_offset"]: row for row in lines(run("store", "dump", tmp_path, "--json", "--body", "hex"))}

    compressed = [row for row in expected if row["sysFlag"] & 0x300]
    assert compressed
    for row in compressed:
        assert len(found[row["commitLogOffset"]]["body"]) == 2 * row["bodyLength"]


# rebuild


def test_a_dry_run_lists_the_files_to_rebuild_and_changes_nothing(folder: Path) -> None:
    flip(folder / "consumequeue/Orders/0/00000000000000000000", 5)

    result = run("store", "rebuild", "--dry-run", folder)

    assert result.exit_code == 0
    assert result.stdout.startswith("Would rebuild ")
    assert "  consumequeue/Orders/0/00000000000000000000\n" in result.stdout
    assert run("store", "verify", folder).exit_code == 1


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_without_confirmation_nothing_is_changed(folder: Path, answer: str) -> None:
    flip(folder / "consumequeue/Orders/0/00000000000000000000", 5)

    result = run("store", "rebuild", folder, text_in=answer)

    assert result.exit_code == 1
    assert "Nothing changed." in result.stderr
    assert run("store", "verify", folder).exit_code == 1


@pytest.mark.parametrize("yes", [["--yes"], ["-y"], []])
def test_a_rebuilt_store_is_sound(folder: Path, yes: list[str]) -> None:
    flip(folder / "consumequeue/Orders/0/00000000000000000000", 5)
    flip(next((folder / "index").iterdir()), 100)

    result = run("store", "rebuild", folder, *yes, text_in="y\n")

    assert result.exit_code == 0
    assert "Rebuilt 4 consume queues with 43 entries and 4 index files from 46 messages." in result.stdout
    assert run("store", "verify", folder).exit_code == 0


def test_a_rebuild_over_damage_reports_what_it_skipped(folder: Path) -> None:
    flip(folder / "commitlog/00000000000000000000", 90)

    result = run("store", "rebuild", "-y", folder)

    assert result.exit_code == 2
    assert result.stderr.startswith("skipped: no valid record from log offset 0 to 201")


def test_a_store_in_use_is_not_rebuilt(folder: Path) -> None:
    with DiskFiles().open(folder / "lock", create=True) as lock:
        assert lock.lock()

        result = run("store", "rebuild", "-y", folder)

    assert result.exit_code == 3
    assert "is in use by" in result.stderr


# the program itself


def command(*args: object) -> list[str]:
    return [sys.executable, "-m", "pocketmq", *map(str, args)]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SRC), "PYTHONWARNINGS": "error"}


def test_the_program_runs_as_a_module(folder: Path) -> None:
    done = subprocess.run(
        command("store", "verify", folder), capture_output=True, text=True, env=environment(), timeout=60, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "Sound:" in done.stdout


def test_a_closed_pipe_ends_a_dump_quietly(folder: Path) -> None:
    with subprocess.Popen(
        command("store", "dump", "--json", folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as dump:
        assert dump.stdout is not None
        assert dump.stderr is not None
        dump.stdout.close()

        assert dump.stderr.read() == b""
        assert dump.wait(timeout=60) != 2


def press_until_it_ends(asked: subprocess.Popen[bytes]) -> None:
    """Press Ctrl-C, and again if it had no effect: Python may get a signal just before a read, and then still read."""
    for _ in range(12):
        asked.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            asked.wait(timeout=5)
            return
    asked.kill()
    pytest.fail("it still runs after twelve times Ctrl-C")


def test_ctrl_c_ends_a_command_cleanly(folder: Path) -> None:
    with subprocess.Popen(
        command("store", "rebuild", folder),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as asked:
        assert asked.stdout is not None
        assert asked.stderr is not None
        asked.stdout.readline()
        press_until_it_ends(asked)

        assert b"Traceback" not in asked.stderr.read()
        assert asked.returncode in (1, 130)
    assert run("store", "verify", folder).exit_code == 0


def test_a_rebuild_reports_what_it_omitted(folder: Path) -> None:
    (folder / "config" / "topics.json").write_text('{"topicConfigTable":{"Orders":{}}}')
    for path in (folder / "consumequeue" / "Bills" / "0").iterdir():
        path.unlink()
    (folder / "consumequeue" / "Bills" / "0").rmdir()
    (folder / "consumequeue" / "Ghosts" / "3").mkdir(parents=True)
    (folder / "consumequeue" / "Ghosts" / "3" / "00000000000000000000").write_bytes(b"\1" * 80)
    second = lines(run("store", "dump", folder, "--topic", "Orders", "--json"))[1]
    flip(folder / "commitlog/00000000000000000000", second["log_offset"] + 90)

    result = run("store", "rebuild", "-y", folder)

    assert "1 message missing in the log; their queue offsets stay empty." in result.stdout
    assert "Removed 1 queue file without messages in the log." in result.stdout
    assert "Skipped deleted topics: Bills." in result.stdout


def test_a_rebuild_does_not_change_batch_queues(tmp_path: Path) -> None:
    store = MadeStore()
    store.append("Orders")
    store.append("Batches", sys_flag=0x80)
    store.derive().files.materialise(tmp_path)

    result = run("store", "rebuild", "-y", tmp_path / "store", "--index-slots", 50)

    assert "Not rebuilt, since they contain batches: Batches/0." in result.stdout

"""`pocketmq demo` from outside: what it refuses, and its exit codes. tests/demo runs complete demos."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pocketmq.cli import main
from pocketmq.demo import day
from pocketmq.demo.day import Report
from pocketmq.demo.reconciliation import Check


def run(*words: object) -> Result:
    return CliRunner().invoke(main, ["demo", *map(str, words)], standalone_mode=True)


def report(expected: int, found: int) -> Report:
    return Report(
        checks=(Check("sent", expected, found),),
        reasons={},
        windows=(),
        folder=Path("d"),
        lake=Path("d/lake"),
        plot=Path("d/p.png"),
        took_ms=1,
        seed=1,
    )


def ending_with(made: Report, asked: list[Any]) -> Callable[..., Report]:
    def fake(settings: day.DemoSettings, show: Callable[[Report], None], *, is_quiet: bool) -> Report:
        asked.append((settings, is_quiet))
        show(made)
        return made

    return fake


@pytest.mark.parametrize(("found", "code"), [(5, 0), (4, 1)])
def test_the_exit_code_shows_whether_every_message_is_accounted_for(
    monkeypatch: pytest.MonkeyPatch, found: int, code: int
) -> None:
    monkeypatch.setattr(day, "run", ending_with(report(5, found), []))

    done = run("--json")

    assert done.exit_code == code
    assert json.loads(done.stdout)["holds"] == (code == 0)


def test_options_are_passed_to_the_demo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(day, "run", ending_with(report(1, 1), asked))

    done = run("--messages", "1_000_000", "--dir", tmp_path, "--seed", 9, "--keep", "--console-port", 4000)

    assert "What to try next" in done.stdout
    assert asked == [(day.DemoSettings(tmp_path, 1_000_000, 9, False, 4000, True), False)]


def test_too_few_messages_are_refused() -> None:
    done = run("--messages", 5)

    assert done.exit_code == 64
    assert "5 is not in the range" in done.stderr


def test_resume_needs_an_interrupted_demo(tmp_path: Path) -> None:
    done = run("--resume", "--dir", tmp_path)

    assert done.exit_code == 64
    assert "has no demo to continue" in done.stderr


def test_a_folder_with_other_files_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")

    done = run("--dir", tmp_path)

    assert done.exit_code == 3
    assert "which does not belong to a demo" in done.stderr
    assert (tmp_path / "thesis.txt").exists()


def test_after_ctrl_c_the_command_to_continue_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(*args: object, **options: object) -> Report:
        raise KeyboardInterrupt

    monkeypatch.setattr(day, "run", interrupted)

    done = run("--dir", tmp_path)

    assert done.exit_code == 130
    assert f"pocketmq demo --resume --dir {tmp_path}" in done.stderr


def test_the_page_about_the_demo_has_exactly_its_options() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guides" / "demo.md").read_text("utf-8")

    told = set(re.findall(r"^\| `(--[a-z-]+)", page, re.MULTILINE))

    assert told == {name for option in main.commands["demo"].params for name in option.opts}

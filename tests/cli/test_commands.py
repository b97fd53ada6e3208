import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from pocketmq.cli import main
from pocketmq.cli.commands import CommandGroup, ExitCode, parsed, program_name
from pocketmq.errors import InvalidSetting, StoreDamaged
from pocketmq.model.human import parse_pair


@click.group(cls=CommandGroup)
def group() -> None:
    """Commands that end in all ways."""


@group.command()
@click.argument("how")
def end(how: str) -> int | None:
    match how:
        case "usage":
            raise InvalidSetting("that cannot be")
        case "damage":
            raise StoreDamaged("that is broken")
        case "disk":
            raise OSError(5, "Input/output error", "/dev/x")
        case "nameless":
            raise OSError("strange")
        case "interrupt":
            raise KeyboardInterrupt
        case "fault":
            raise ZeroDivisionError("\nfirst line\n\tat org.apache.Spark.run(Spark.java:5)")
        case "code":
            return ExitCode.REPAIRABLE
    return None


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ("well", 0, ""),
        ("code", 1, ""),
        ("usage", 64, "pocketmq: that cannot be\n"),
        ("damage", 3, "pocketmq: that is broken\n"),
        ("disk", 3, "pocketmq: /dev/x: Input/output error\n"),
        ("nameless", 3, "pocketmq: strange\n"),
        (
            "fault",
            70,
            "pocketmq: unexpected error: ZeroDivisionError: first line. Set POCKETMQ_TRACEBACK=1 to see the traceback\n",
        ),
        ("interrupt", 130, "pocketmq: interrupted\n"),
    ],
)
def test_every_kind_of_end_has_its_exit_code_and_text(how: str, code: int, words: str) -> None:
    result = CliRunner().invoke(group, ["end", how])

    assert result.exit_code == code
    assert result.stderr.lstrip("\n") == words


def test_a_missing_argument_is_a_wrong_usage() -> None:
    result = CliRunner().invoke(group, ["end"])

    assert result.exit_code == 64
    assert "Missing argument 'HOW'" in result.stderr


def test_a_caller_may_handle_errors_itself() -> None:
    with pytest.raises(InvalidSetting):
        group.main(["end", "usage"], standalone_mode=False)


@pytest.mark.parametrize("args", [["--help"], ["-h"], ["store", "--help"], ["store", "verify", "-h"]])
def test_every_command_has_help(args: list[str]) -> None:
    result = CliRunner().invoke(main, args)

    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: ")


def test_the_version_is_printed() -> None:
    assert CliRunner().invoke(main, ["--version"]).stdout.startswith("pocketmq, version ")


def all_commands(group: click.Group) -> Iterator[click.Command]:
    for command in group.commands.values():
        yield from all_commands(command) if isinstance(command, click.Group) else [command]


def test_every_command_and_option_has_a_help_text() -> None:
    commands = list(all_commands(main))
    options = [
        (command.name, each) for command in commands for each in command.params if isinstance(each, click.Option)
    ]

    assert len(commands) >= 26
    assert [command.name for command in commands if not command.help] == []
    assert [(name, option.name) for name, option in options if not option.help] == []


def test_help_does_not_import_the_client() -> None:
    code = "import sys, pocketmq.cli; sys.exit('pocketmq.client' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_a_program_outside_the_path_is_shown_with_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/shop/.venv/bin/pocketmq", "demo"])
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    assert program_name() == "/shop/.venv/bin/pocketmq"

    monkeypatch.setattr("shutil.which", lambda name, path=None: "/usr/bin/pocketmq")
    assert program_name() == "pocketmq"


def test_a_value_of_another_form_is_an_error_of_click() -> None:
    assert parsed(parse_pair)("a=b") == ("a", "b")
    with pytest.raises(click.BadParameter, match="'x' is not of the form NAME=VALUE"):
        parsed(parse_pair)("x")

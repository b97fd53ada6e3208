"""docs/reference/configuration.md says what is there: no key and no option is missing, and its example runs."""

import re
import subprocess
import sys
from pathlib import Path

from click import Command, Option

from pocketmq.broker.setting_keys import CONSTANTS, KEYS, write_keys
from pocketmq.broker.settings import BrokerSettings
from pocketmq.cli import main

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "reference" / "configuration.md").read_text("utf-8")
KEY_TABLE = DOCUMENT.partition("## broker.conf")[2]


def told_defaults() -> dict[str, str]:
    told: dict[str, str] = {}
    for line in KEY_TABLE.splitlines():
        if line.startswith("| `"):
            names, defaults = (cell.strip() for cell in line.split("|")[1:3])
            told |= zip((name.strip("` ") for name in names.split(",")), defaults.split(", "), strict=True)
    return told


def test_every_key_is_there_with_its_default() -> None:
    defaults = write_keys(BrokerSettings())

    assert told_defaults() == {name: defaults.get(name) or "none" for name in KEYS}


def test_what_may_change_while_running_stands_first() -> None:
    first, _, second = KEY_TABLE.partition("only at the start")

    assert {name for name, key in KEYS.items() if key.at_run_time} == {name for name in KEYS if f"`{name}`" in first}
    assert {name for name, key in KEYS.items() if not key.at_run_time} == {
        name for name in KEYS if f"`{name}`" in second
    }


def test_what_can_have_one_value_only_is_told() -> None:
    told = {name: constant.told(BrokerSettings()) for name, constant in CONSTANTS.items()}

    assert [name for name, text in told.items() if f"`{name}={text}`" not in KEY_TABLE] == []


def options_of(command: Command) -> set[str]:
    return {name for option in command.params if isinstance(option, Option) for name in option.opts}


def test_every_option_is_told_and_no_other() -> None:
    serve, broker = main.commands["serve"], main.commands["broker"]
    told = set(re.findall(r"`(--?[a-z-]+)", DOCUMENT)) | set(re.findall(r"\[(--?[a-z-]+)", DOCUMENT))

    assert (options_of(serve) | options_of(broker)) - told == set()
    assert told - options_of(serve) - options_of(broker) == set()


def test_the_example_runs() -> None:
    example = DOCUMENT.partition("```python\n")[2].partition("```")[0]

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example], capture_output=True, text=True, timeout=60, check=True
    )

    assert re.match(r"name server: 127\.0\.0\.1:\d+\nbroker: 127\.0\.0\.1:\d+\ndata: /", done.stdout)

"""Kills demos by SIGKILL at random moments, either Spark alone or all processes, and continues them with `--resume`.

python -m tests.demo.kills --kills 2        about a minute each on a calm machine; needs Java 17

Whatever the moment was, every message is accounted for at the end.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep

from rich.console import Console

PATIENCE_S = 600.0
REFUSED = 3


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m tests.demo.kills", description="Demos killed for real.")
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    given = parser.parse_args(arguments)
    with TemporaryDirectory() as folder:
        kill_and_count(Path(folder), given.kills, given.messages, given.seed)


def kill_and_count(folder: Path, kills: int, messages: int, seed: int) -> None:
    say = Console(highlight=False).print
    say(f"seed {seed}")
    dice = random.Random(seed)
    new = ["--messages", str(messages)]
    for kill in range(kills):
        is_spark_alone = (kill + seed) % 2 == 0
        with demo(folder, *(["--resume"] if kill else new)) as process:
            wait_for_more_batches(folder, process)
            sleep(dice.random() * 3)
            (kill_spark if is_spark_alone else kill_all)(process)
            _, words = process.communicate(timeout=PATIENCE_S)
        if is_spark_alone:
            assert process.returncode == REFUSED, words
            assert "--resume" in words, words
        say(f"kill {kill + 1}: {'Spark alone' if is_spark_alone else 'all processes'}, after {batches(folder)} batches")
    with demo(folder, "--resume" if kills else "--messages", *([] if kills else new[1:])) as process:
        told, words = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, told + words
    report = json.loads(told)
    assert report["holds"]
    say(f"{messages:,} messages, each accounted for, after {kills} kills")


@contextmanager
def demo(folder: Path, *options: str) -> "Iterator[subprocess.Popen[str]]":
    """A demo with all its processes; remaining ones are killed at the end of the block."""
    with subprocess.Popen(
        [sys.executable, "-m", "pocketmq", "demo", "--json", "--dir", str(folder), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                kill_all(process)


def wait_for_more_batches(folder: Path, process: "subprocess.Popen[str]") -> None:
    before, deadline = batches(folder), monotonic() + PATIENCE_S
    while batches(folder) <= before:
        assert process.poll() is None, f"the demo ended by itself: {process.communicate()}"
        assert monotonic() < deadline, "Spark does nothing"
        sleep(0.05)


def batches(folder: Path) -> int:
    """Batches that Spark has started, of all queries."""
    return sum(path.name.isdecimal() for path in folder.glob("checkpoints/*/offsets/*"))


def kill_all(process: "subprocess.Popen[str]") -> None:
    os.killpg(process.pid, signal.SIGKILL)


def kill_spark(process: "subprocess.Popen[str]") -> None:
    """The Java among its descendants, alone."""
    for pid in descendants(process.pid):
        if Path(f"/proc/{pid}/comm").read_text().strip() == "java":
            os.kill(pid, signal.SIGKILL)
            return
    raise AssertionError("no Java runs")


def descendants(pid: int) -> list[int]:
    children = [
        int(word) for task in Path(f"/proc/{pid}/task").iterdir() for word in (task / "children").read_text().split()
    ]
    return [*children, *(grandchild for child in children for grandchild in descendants(child))]


if __name__ == "__main__":
    main()

"""`pocketmq …` as a user runs it, at a given name server."""

import json
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from click.testing import CliRunner

from pocketmq.cli import main

WAIT_S: Final = 90
"""How long something may take to be seen that brokers do in rounds."""


class Ran(NamedTuple):
    """What a command said and how it ended."""

    words: tuple[str, ...]
    code: int
    out: str
    error: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]

    def flaws(self, code: int = 0, *told: str) -> Iterator[str]:
        """What is wrong with it: another exit code, a traceback, or words that are not there."""
        text = " ".join((self.out + self.error).split())
        shown = f"`pocketmq {' '.join(self.words)}`"
        if self.code != code:
            yield f"{shown} ended with {self.code}, not {code}: {text[-200:]}"
        if "Traceback" in text:
            yield f"{shown} broke off: {text[-200:]}"
        for word in told:
            if word not in text:
                yield f"{shown} does not say {word!r}: {text[-200:]}"


class Shell:
    """Runs commands at one name server, in this process: a hundred starts of Python would take longer than all they ask."""

    def __init__(self, name_server: str) -> None:
        self._name_server = name_server

    def run(self, *words: object) -> Ran:
        texts = tuple(map(str, words))
        done = CliRunner().invoke(main, texts, env={"NAMESRV_ADDR": self._name_server})
        broke_off = done.exception is not None and not isinstance(done.exception, SystemExit)
        error = "".join(traceback.format_exception(done.exception)) if broke_off else done.stderr
        return Ran(texts, done.exit_code, done.stdout, error)

    def rows(self, *words: object) -> list[dict[str, Any]]:
        return self.run(*words, "--json").rows

    def until(self, seen: Callable[[Ran], object], *words: object) -> Ran:
        """The command again and again, until it shows what is waited for or time is up."""
        end = time.monotonic() + WAIT_S
        while True:
            ran = self.run(*words)
            if seen(ran) or time.monotonic() > end:
                return ran
            time.sleep(1)

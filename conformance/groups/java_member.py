"""A Java member of all groups at once: what it says is read by a thread."""

import subprocess
import threading
import time
from collections.abc import Sequence
from typing import Final

from conformance import apache
from conformance.java_programs import start

LEAVE_S: Final = 60


class JavaMember:
    """`shares`: the queues that each strategy gives it. `got`: strategies and bodies of what it consumed."""

    def __init__(
        self,
        version: str,
        name_server: str,
        topic: str,
        name: str,
        broker: str,
        own: Sequence[int],
        strategies: Sequence[str],
    ) -> None:
        self.name = name
        self.own = frozenset(own)
        self.shares: dict[str, frozenset[int]] = {}
        self.got: list[tuple[str, str]] = []
        self.said: list[str] = []
        arguments = (topic, name, broker, ",".join(map(str, own)), *strategies)
        self._process = start(version, name_server, "Member", *arguments)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            match line.split():
                case ["share", strategy]:
                    self.shares[strategy] = frozenset()
                case ["share", strategy, ids]:
                    self.shares[strategy] = frozenset(map(int, ids.split(",")))
                case ["got", strategy, body]:
                    self.got.append((strategy, body))
                case _:
                    self.said.append(line.strip())

    async def share(self, strategy: str) -> frozenset[int]:
        if self._process.poll() is not None and self._process.stdin is not None and not self._process.stdin.closed:
            raise RuntimeError(f"{self.name} ended by itself: {' | '.join(self.said[-5:])}")
        return self.shares.get(strategy, frozenset())

    def leave(self) -> None:
        """Stop as a program would; killed when it does not."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        end = time.monotonic() + LEAVE_S
        while self._process.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
        self.kill()

    def kill(self) -> None:
        """Harmless when it has ended."""
        if self._process.poll() is None:
            apache.kill_group(self._process.pid)
        try:
            self._process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            self.said.append("could not be killed")
        self._reader.join(LEAVE_S)

"""A Java push consumer whose broker says whether it pulls or pops: what it says is read by a thread."""

import threading
import time
from typing import Final

from conformance import apache
from conformance.java_programs import start

LEAVE_S: Final = 60
REBALANCE_MS: Final = 2000
"""Java's default is 20 s."""


class JavaPopper:
    """`got` and `failed`: bodies and former attempts of what its listener got."""

    def __init__(self, version: str, name_server: str, topic: str, group: str, name: str) -> None:
        self.got: list[tuple[str, int]] = []
        self.failed: list[tuple[str, int]] = []
        self.said: list[str] = []
        self.is_running = threading.Event()
        options = (f"rocketmq.client.rebalance.waitInterval={REBALANCE_MS}",)
        self._process = start(version, name_server, "Popper", topic, group, name, options=options)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            match line.split():
                case ["got", body, times]:
                    self.got.append((body, int(times)))
                case ["failed", body, times]:
                    self.failed.append((body, int(times)))
                case ["running"]:
                    self.is_running.set()
                case _:
                    self.said.append(line.strip())

    def wait_running(self, timeout_s: float) -> None:
        if not self.is_running.wait(timeout_s):
            raise TimeoutError(f"a Java member does not run: {' | '.join(self.said[-5:])}")

    def leave(self) -> None:
        """Stop as a program would; killed when it does not."""
        assert self._process.stdin is not None
        if not self._process.stdin.closed:
            self._process.stdin.close()
        end = time.monotonic() + LEAVE_S
        while self._process.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
        if self._process.poll() is None:
            apache.kill_group(self._process.pid)
            self._process.wait(LEAVE_S)
        self._reader.join(LEAVE_S)

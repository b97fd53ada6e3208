"""A live group: a Java producer that has sent eight messages, and a Java consumer that has got them and stays."""

import re
import subprocess
import sys
from typing import Final, Self

from conformance import apache
from conformance.mqadmin.commands import CLIENT, OFFSET_ID, UNIQUE_ID
from conformance.programs import mqadmin

_SENT: Final = re.compile(r"msgId=(\w+), offsetMsgId=(\w+), .*queueId=(\d+)")
END_S: Final = 60


class NoStay(Exception):
    """The live group did not come up."""


class Stay:
    """It stays until the end of the `with` block."""

    def __init__(self, version: str, name_server: str) -> None:
        self._version = version
        self._name_server = name_server
        self._process: subprocess.Popen[str] | None = None
        self.first_queue = -1
        self.facts: dict[str, str] = {}

    def __enter__(self) -> Self:
        self._process = process = subprocess.Popen(
            [sys.executable, apache.PEERS / "drive", self._version, self._name_server, "Conversation", "stay"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if sent := _SENT.search(line):
                    self.facts |= {UNIQUE_ID: sent[1], OFFSET_ID: sent[2]}
                    self.first_queue = int(sent[3]) if self.first_queue < 0 else self.first_queue
                if line.startswith("staying"):
                    self.facts[CLIENT] = self._client()
                    return self
            raise NoStay(f"the live group ended with {process.wait()}")
        except BaseException:
            self.__exit__()
            raise

    def _client(self) -> str:
        shown = mqadmin(self._version, self._name_server, "consumerConnection", "-g", "CG_stay").text
        found = re.search(r"127\.0\.0\.1@\S+", shown)
        if found is None:
            raise NoStay(f"the live group has no member: {shown}")
        return found[0]

    def __exit__(self, *exc: object) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            apache.kill_group(process.pid)
            process.wait()
        finally:
            process.stdout.close()

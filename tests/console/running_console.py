"""The console as users start it: a process of its own, with the line that it prints when ready."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def running_console(name_server: str, *options: str) -> Iterator[str]:
    """Its address, such as `http://127.0.0.1:40123/`."""
    command = [sys.executable, "-m", "pocketmq.console", "--json", "--until-end-of-input", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--namesrv", name_server, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield str(json.loads(process.stdout.readline())["url"])
    finally:
        process.terminate()
        process.communicate(timeout=20)

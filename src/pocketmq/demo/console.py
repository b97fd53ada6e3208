"""The web console beside the demo, in a process of its own. Without the libraries that it needs, the demo goes on without it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

PROGRAM: Final = (sys.executable, "-m", "pocketmq.console")
STOP_S: Final = 10.0


@contextmanager
def running_console(name_servers: str, port: int, picture: Path) -> Iterator[str | None]:
    """Its address for a browser; None when it cannot start. Port 0 is any free one. It shows the picture once that is drawn."""
    where = ("--namesrv", name_servers, "--port", str(port), "--picture", str(picture))
    options = ("--json", "--until-end-of-input", *where)
    # In a session of its own: ctrl-C on the terminal is for the demo, which then closes the console's input stream.
    with subprocess.Popen(  # noqa: S603 our own program
        [*PROGRAM, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            yield str(msgspec.json.decode(line)["url"]) if line else None
        finally:
            process.stdin.close()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()

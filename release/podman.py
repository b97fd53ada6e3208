"""Podman in an environment of its own: it keeps images and containers in a temporary folder.

Limits for open files, control groups and storage are set so that it also works inside a container.
"""

import json
import os
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

from release.programs import Failed, run

HEALTHY_S: Final = 60
POLL_S: Final = 0.2


class Podman:
    """`with` removes all that is left."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        settings = folder / "containers.conf"
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        runtime = next((name for name in ("runc", "crun") if shutil.which(name)), "crun")
        settings.write_text(
            f'[engine]\nruntime = "{runtime}"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
            f'[containers]\ndefault_ulimits = ["nofile={min(files, 4096)}:{min(files, 4096)}", "nproc=1000:1000"]\n'
        )
        self._environ = os.environ | {"CONTAINERS_CONF": str(settings), "TMPDIR": str(folder)}
        storage = [f"--root={folder / 'storage'}", f"--runroot={folder / 'run'}", "--storage-driver=vfs"]
        self._command = ["podman", *storage]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        subprocess.run([*self._command, "rm", "--all", "--force"], env=self._environ, capture_output=True, check=False)
        subprocess.run(
            [*self._command, "system", "reset", "--force"], env=self._environ, capture_output=True, check=False
        )

    def run(self, *words: str | Path, timeout_s: float = 300) -> str:
        return run([*self._command, *words], environ=self._environ, timeout_s=timeout_s).strip()

    def inspect(self, container: str) -> dict[str, Any]:
        [found] = json.loads(self.run("inspect", container))
        state: dict[str, Any] = found
        return state

    def wait_until_healthy(self, container: str) -> None:
        """Run the health check of the image until it passes."""
        deadline = time.monotonic() + HEALTHY_S
        while True:
            try:
                self.run("healthcheck", "run", container)
            except Failed:
                if time.monotonic() > deadline:
                    raise Failed(f"the container is not healthy:\n{self.run('logs', container)}") from None
                time.sleep(POLL_S)
            else:
                return

    @contextmanager
    def service(self) -> Iterator[str]:
        """The address under which it speaks Docker's protocol."""
        socket = self._folder / "podman.sock"
        words: Sequence[str] = [*self._command, "system", "service", "--time=0", f"unix://{socket}"]
        with subprocess.Popen(words, env=self._environ, stderr=subprocess.DEVNULL) as process:
            try:
                deadline = time.monotonic() + HEALTHY_S
                while not socket.exists():
                    if time.monotonic() > deadline:
                        raise Failed("podman's service did not start")
                    time.sleep(POLL_S)
                yield f"unix://{socket}"
            finally:
                process.terminate()


def why_not(folder: Path) -> str:
    """Why podman cannot run containers here; empty if it can."""
    if shutil.which("podman") is None:
        return "podman is not installed: apt-get install podman runc"
    try:
        with Podman(folder) as podman:
            podman.run("info")
    except Failed as failure:
        return str(failure).splitlines()[-1]
    return ""

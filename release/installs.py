"""Installs the wheels as users do, each time into an empty environment without a compiler: `make installs`.

python -m release.installs              all ways; a minute
python -m release.installs uvx pipx     some of them

The folder dist/ is the index for PocketMQ; its libraries come from the usual index. A way that this machine cannot try is named with
the reason. Each way ends with a server that answers.
"""

import argparse
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from hatch_build import LOSS

import pocketmq
from release.programs import SAMPLE_BYTES, WHEELS, Failed, main_of, run, say, tool
from release.targets import PURE, TARGETS

VERSION: Final = pocketmq.__version__
DRAWN: Final = {"pocketmq", "msgspec", "click", "rich", "markdown-it-py", "mdurl", "pygments"}
"""PocketMQ, its three libraries, and the three that rich needs."""
PICKED: Final = {
    **{target.platform: target.platform for target in TARGETS},
    "macosx_15_0_arm64": "macosx_11_0_arm64",
    "win_amd64": PURE,
    "manylinux_2_31_riscv64": PURE,
}
"""Which wheel pip takes on a machine."""
DEBIAN: Final = "bookworm"
LAUNCHER: Final = ("realpath", "dirname")
"""What the launcher of an application needs that uv writes."""
READY_S: Final = 120
SMOKE: Final = """
import sys, threading
import pocketmq
from pocketmq import compiled
assert bool(compiled.why_pure()) == (sys.argv[1] == "pure"), compiled.why_pure()
assert pocketmq.__version__ == sys.argv[2], pocketmq.__version__
cooked = threading.Event()
with pocketmq.Server() as server, pocketmq.Producer(server.name_server) as producer:
    for number in range(100):
        producer.send("orders", b"pizza" * (number + 1), keys=str(number))
    consumer = pocketmq.PushConsumer(server.name_server, group="kitchen", start_at="first")
    seen = set()

    @consumer.on("orders")
    def cook(message):
        assert message.body == b"pizza" * (int(message.keys[0]) + 1)
        seen.add(message.keys[0])
        if len(seen) == 100:
            cooked.set()

    with consumer:
        assert cooked.wait(120), len(seen)
print("100 messages sent and received")
"""


class NotHere(Exception):
    """This machine cannot try it."""


class Place(NamedTuple):
    """An empty home, and nothing in PATH but what a test puts there."""

    folder: Path

    def environ(self, *programs: str) -> dict[str, str]:
        links = self.folder / "bin"
        links.mkdir(exist_ok=True)
        for name in programs:
            (links / Path(name).name).symlink_to(shutil.which(name) or name)
        usual = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
        index = {"PIP_FIND_LINKS": str(WHEELS), "UV_FIND_LINKS": str(WHEELS)}
        fresh = {
            "UV_CACHE_DIR": str(self.folder / "uv"),
            "PIPX_HOME": str(self.folder / "pipx"),
            "PIP_NO_CACHE_DIR": "1",
        }
        return (
            usual | index | fresh | {"HOME": str(self.folder), "PATH": str(links), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        )


def empty_environment(place: Place) -> Path:
    venv.create(place.folder / "venv", with_pip=True)
    return place.folder / "venv" / "bin" / "python"


def by_pip(place: Place) -> None:
    """`pip install pocketmq`: three libraries, the C twins without a compiler, a server that answers."""
    python, environ = empty_environment(place), place.environ()
    run([python, "-m", "pip", "install", "--quiet", f"pocketmq=={VERSION}"], environ=environ)
    listed = json.loads(run([python, "-m", "pip", "list", "--format", "json"], environ=environ))
    drawn = {one["name"].lower() for one in listed} - {"pip", "setuptools"}
    if drawn != DRAWN:
        raise Failed(f"pip installed {sorted(drawn)}, expected {sorted(DRAWN)}")
    run([python, "-c", SMOKE, "twins", VERSION], environ=environ, folder=place.folder)
    serve([python, "-m", "pocketmq"], place, environ)


def pure(place: Place) -> None:
    """The wheel for all other machines."""
    python, environ = empty_environment(place), place.environ()
    run([python, "-m", "pip", "install", "--quiet", wheel_for(PURE)], environ=environ)
    run([python, "-c", SMOKE, "pure", VERSION], environ=environ, folder=place.folder)


def from_source(place: Place) -> None:
    """The source distribution, on a machine without a compiler: one line says what is lost."""
    python, environ = empty_environment(place), place.environ()
    source = WHEELS / f"pocketmq-{VERSION}.tar.gz"
    told = run([python, "-m", "pip", "install", "--verbose", source], environ=environ)
    lines = [line.strip() for line in told.splitlines() if LOSS in line]
    if len(lines) != 1 or "there is no C compiler called" not in lines[0]:
        raise Failed(f"the build did not say in one line that there is no compiler: {lines}")
    run([python, "-c", SMOKE, "pure", VERSION], environ=environ, folder=place.folder)


def by_uvx(place: Place) -> None:
    """`uvx pocketmq serve`."""
    serve([tool("uvx"), "--python", sys.executable, "pocketmq"], place, place.environ(tool("uv"), *LAUNCHER))


def by_pipx(place: Place) -> None:
    """`pipx run pocketmq serve`."""
    serve([tool("pipx"), "run", "--python", sys.executable, "pocketmq"], place, place.environ(*LAUNCHER))


def by_uv_add(place: Place) -> None:
    """`uv add pocketmq` in a new project, then `uv run`."""
    project, environ = place.folder / "shop", place.environ()
    run([tool("uv"), "init", "--bare", "--python", sys.executable, project], environ=environ)
    run([tool("uv"), "add", "--python", sys.executable, "pocketmq"], environ=environ, folder=project)
    run([tool("uv"), "run", "python", "-c", SMOKE, "twins", VERSION], environ=environ, folder=project)


def picks(place: Place) -> None:
    """pip takes the right wheel on each kind of machine."""
    python, environ = empty_environment(place), place.environ()
    for platform, expected in PICKED.items():
        folder = place.folder / platform
        options = [
            "--no-deps",
            "--no-index",
            "--platform",
            platform,
            "--python-version",
            "3.13",
            "--only-binary",
            ":all:",
        ]
        run([python, "-m", "pip", "download", "--quiet", *options, "-d", folder, "pocketmq"], environ=environ)
        [found] = folder.iterdir()
        if found.name != wheel_for(expected).name:
            raise Failed(f"on {platform} pip takes {found.name}, expected {wheel_for(expected).name}")


def on_arm(place: Place) -> None:
    """The wheel for aarch64 in Debian's Python for it, under emulation (qemu-user)."""
    for program in ("qemu-aarch64-static", "mmdebstrap"):
        if shutil.which(program) is None:
            raise NotHere(f"{program} is not installed: apt-get install qemu-user-static mmdebstrap")
    system, site = place.folder / "arm64", place.folder / "site"
    packages = "python3.11-minimal,libpython3.11-stdlib"
    make = ["mmdebstrap", "--quiet", "--variant=extract", "--architectures=arm64", f"--include={packages}", DEBIAN]
    run([*make, system], timeout_s=900)
    python = empty_environment(place)
    machines = [f"--platform={name}_aarch64" for name in ("manylinux2014", "manylinux_2_28", "manylinux_2_34")]
    options = [*machines, "--python-version=3.11", "--only-binary=:all:", f"--target={site}"]
    run([python, "-m", "pip", "install", "--quiet", *options, f"pocketmq=={VERSION}"], environ=place.environ())
    emulated = ["qemu-aarch64-static", "-L", str(system), "-E", f"PYTHONPATH={site}"]
    run([*emulated, system / "usr/bin/python3.11", "-c", SMOKE, "twins", VERSION], folder=place.folder)


def wheel_for(platform: str) -> Path:
    """The wheel in dist/ with this tag."""
    found = list(WHEELS.glob(f"pocketmq-{VERSION}-*-{platform}.whl"))
    if not found:
        raise Failed(f"there is no wheel for {platform} in {WHEELS}: run `make wheels` first")
    return found[0]


def serve(command: Sequence[str | Path], place: Place, environ: dict[str, str]) -> None:
    """Start `serve` on free ports, wait until it is ready, and stop it by SIGTERM."""
    words = [*map(str, command), "serve", "--namesrv-port", "0", "--broker-port", "0", "--json"]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(words, cwd=place.folder, env=environ, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        try:
            assert process.stdout is not None
            came = select.select([process.stdout], [], [], READY_S)[0]
            line = process.stdout.readline() if came else b""
            process.send_signal(signal.SIGTERM)
            code = process.wait(READY_S)
        except BaseException:
            process.kill()
            raise
        errors.seek(0)
        told = errors.read().decode(errors="replace")[-SAMPLE_BYTES:]
    if not line.startswith(b'{"event":"ready"') or code != 0:
        raise Failed(f"{' '.join(words)} printed {line!r} and ended with {code}:\n{told}")


WAYS: Final[dict[str, Callable[[Place], None]]] = {
    "pip": by_pip,
    "pure": pure,
    "source": from_source,
    "uvx": by_uvx,
    "pipx": by_pipx,
    "uv-add": by_uv_add,
    "picks": picks,
    "arm": on_arm,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", choices=[*WAYS, []], help=f"of {', '.join(WAYS)}; all by default")
    ways = parser.parse_args(arguments).ways or list(WAYS)
    return main_of(lambda: try_all(ways))


def try_all(ways: Sequence[str]) -> None:
    for name in ways:
        try_way(name, WAYS[name])


def try_way(name: str, way: Callable[[Place], None]) -> None:
    with tempfile.TemporaryDirectory(prefix="pocketmq-") as folder:
        try:
            way(Place(Path(folder)))
        except NotHere as reason:
            say(f"{name:8} not tried: {reason}")
        else:
            say(f"{name:8} passed: {(way.__doc__ or '').strip()}")


if __name__ == "__main__":
    sys.exit(main())

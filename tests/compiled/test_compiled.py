"""The door to the compiled twin: when it is there, when it is not, and why."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import pytest
from hatch_build import LIBRARY, SOURCES, compile_twin
from tests.twins import compiled_or_skip

from pocketmq import compiled

ROOT = Path(__file__).parents[2]


def twin_with(pure: str) -> str:
    """What a new process uses when the variable is set so."""
    code = "from pocketmq import compiled; print(type(compiled.twin()).__name__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {compiled.PURE: pure},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip()


@pytest.mark.parametrize(("pure", "used"), [("1", "NoneType"), ("yes", "NoneType"), ("0", "module"), ("", "module")])
def test_the_c_twins_are_used_unless_the_environment_selects_python(pure: str, used: str) -> None:
    compiled_or_skip()

    assert twin_with(pure) == used


def test_a_library_of_other_sources_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    left = SimpleNamespace(REVISION=compiled.REVISION - 1)

    assert compiled._of_this_revision(left) is None
    assert "Install PocketMQ again" in caplog.text


def test_a_pure_build_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiled.PURE, "1")

    assert compile_twin(ROOT / SOURCES, tmp_path / LIBRARY) == "POCKETMQ_PURE is set"
    assert list(tmp_path.iterdir()) == []


def test_a_build_without_a_compiler_reports_it_and_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiled.PURE, "0")
    monkeypatch.setenv("LDSHARED", "no-such-compiler -shared")

    assert compile_twin(ROOT / SOURCES, tmp_path / LIBRARY) == "there is no C compiler called no-such-compiler"


def test_the_selected_compiler_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiled.PURE, "0")
    monkeypatch.delenv("LDSHARED", raising=False)
    monkeypatch.setenv("CC", "asked-for -pipe")

    assert compile_twin(ROOT / SOURCES, tmp_path / LIBRARY) == "there is no C compiler called asked-for"


def test_if_the_compiler_of_this_python_is_missing_the_system_compiler_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled_or_skip()
    monkeypatch.setenv(compiled.PURE, "0")
    for name in ("LDSHARED", "CC"):
        monkeypatch.delenv(name, raising=False)
    made_by = dict(sysconfig.get_config_vars()) | {"LDSHARED": "compiler-of-another-machine -shared"}
    monkeypatch.setattr(sysconfig, "get_config_var", made_by.get)

    assert compile_twin(ROOT / SOURCES, tmp_path / LIBRARY) == ""
    assert (tmp_path / LIBRARY).stat().st_size > 0


def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled_or_skip()
    monkeypatch.setenv(compiled.PURE, "0")
    (tmp_path / "wrong.c").write_text("not C")

    reason = compile_twin(tmp_path, tmp_path / LIBRARY)

    assert "failed" in reason
    assert "wrong.c" in reason


def test_the_reason_for_pure_python_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    twin = compiled_or_skip()

    assert compiled.why_pure() == ""
    monkeypatch.setattr(compiled, "_in_use", None)
    assert compiled.why_pure() == "POCKETMQ_PURE is set"
    monkeypatch.setattr(compiled, "built", None)
    assert compiled.why_pure().startswith("it was installed without a C compiler")
    monkeypatch.setattr(compiled, "_in_use", twin)
    assert compiled.why_pure() == ""

"""The package as users install it: its requirements, size and files."""

import importlib.metadata
import os
import re
import subprocess
import sys
import zipfile
from importlib import resources
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import pocketmq
from pocketmq import compiled

ROOT = Path(__file__).parents[1]
MAX_IMPORT_S = 0.150
HEAVY = {
    "pyspark",
    "numpy",
    "pandas",
    "pyarrow",
    "starlette",
    "uvicorn",
    "jinja2",
    "prometheus_client",
    "opentelemetry",
}
OPTIONAL = {"lz4", "zstandard", "uvloop", "orjson", "pytest", "hypothesis"}


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


def fastest_s(code: str, runs: int = 7) -> float:
    """The least processor time of several runs: waiting for a busy processor does not count."""
    times = []
    for _ in range(runs):
        before = os.times()
        run_python(code)
        after = os.times()
        times.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return min(times)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned() -> set[str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    return {normal(line.partition("==")[0]) for line in lines if not line.startswith("#")}


def everything_needed_for(name: str, extras: frozenset[str] = frozenset()) -> set[str]:
    """Every distribution that `name` with `extras` installs into this environment, except itself."""
    found: set[str] = set()
    waiting, seen = [(normal(name), extras)], set()
    while waiting:
        here = waiting.pop()
        if here in seen:
            continue
        seen.add(here)
        for text in importlib.metadata.requires(here[0]) or []:
            requirement = Requirement(text)
            if requirement.marker is None or any(requirement.marker.evaluate({"extra": e}) for e in ["", *here[1]]):
                found.add(normal(requirement.name))
                waiting.append((normal(requirement.name), frozenset(requirement.extras)))
    return found - {normal(name)}


def test_importing_pocketmq_is_quick() -> None:
    bare_s = fastest_s("pass")
    import_s = fastest_s("import pocketmq")

    assert import_s - bare_s < MAX_IMPORT_S


def test_importing_pocketmq_imports_nothing_heavy_and_nothing_optional() -> None:
    loaded = {name.partition(".")[0] for name in run_python("import sys, pocketmq; print(*sys.modules)").split()}

    assert {"pocketmq", "msgspec"} <= loaded
    assert loaded & (HEAVY | OPTIONAL) == set()


def test_python_without_the_global_lock_is_refused_by_a_warning() -> None:
    code = "import sys; sys._is_gil_enabled = lambda: {}; import pocketmq"

    free = subprocess.run([sys.executable, "-c", code.format(False)], capture_output=True, text=True, timeout=60)
    usual = subprocess.run([sys.executable, "-c", code.format(True)], capture_output=True, text=True, timeout=60)

    assert "PocketMQ does not support Python without the global interpreter lock: set PYTHON_GIL=1" in free.stderr
    assert usual.stderr == ""


def test_the_version_is_that_of_the_installed_package() -> None:
    assert pocketmq.__version__ == importlib.metadata.version("pocketmq")
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", pocketmq.__version__)


def test_public_names_exist() -> None:
    assert [name for name in pocketmq.__all__ if not hasattr(pocketmq, name)] == []
    assert pocketmq.__all__ == sorted(pocketmq.__all__)


def test_the_core_needs_three_libraries() -> None:
    requirements = [Requirement(text) for text in importlib.metadata.requires("pocketmq") or []]

    core = {requirement.name for requirement in requirements if requirement.marker is None}

    assert core == {"msgspec", "click", "rich"}


def test_extras_are_the_documented_ones() -> None:
    extras = importlib.metadata.metadata("pocketmq").get_all("Provides-Extra")

    expected = {"speed", "compression", "prometheus", "spark", "schemas", "console", "otel", "all", "test", "docs"}
    expected |= {"faststream", "taskiq", "celery", "fastapi", "openlineage", "grpc"}
    assert set(extras or []) == expected


def test_the_package_is_marked_as_typed() -> None:
    assert resources.files("pocketmq").joinpath("py.typed").is_file()


def wheel_of(folder: Path, *, pure: bool) -> tuple[str, set[str]]:
    """The name of a wheel that is built now, and the names of the files in it."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    surroundings = os.environ | {"POCKETMQ_PURE": "1" if pure else "0"}
    subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, check=True, timeout=300)
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return wheel.name, set(archive.namelist())


def test_a_wheel_contains_only_the_package_its_types_and_its_licence(tmp_path: Path) -> None:
    name, held = wheel_of(tmp_path, pure=True)

    assert name == f"pocketmq-{pocketmq.__version__}-py3-none-any.whl"
    assert {"pocketmq/__init__.py", "pocketmq/py.typed", "pocketmq/model/message.py"} <= held
    assert any(one.endswith("licenses/LICENSE") for one in held)
    top = {"pocketmq", "pyspark_rocketmq", f"pocketmq-{pocketmq.__version__}.dist-info"}
    assert {one.partition("/")[0] for one in held} == top
    assert [one for one in held if one.endswith((".c", ".h", ".so"))] == []


def test_with_a_compiler_a_wheel_contains_the_twins_and_is_platform_specific(tmp_path: Path) -> None:
    if compiled.built is None:
        pytest.skip("there is no C compiler here, or POCKETMQ_PURE was set when this was installed")

    name, held = wheel_of(tmp_path, pure=False)

    assert re.fullmatch(rf"pocketmq-{re.escape(pocketmq.__version__)}-cp311-abi3-\w+\.whl", name)
    assert [one for one in held if one.endswith((".c", ".h", ".so"))] == ["pocketmq/compiled/_turn.abi3.so"]


def test_constraints_are_plain_pins() -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()

    assert [line for line in lines if not re.fullmatch(r"#.*|[A-Za-z0-9_.-]+==[A-Za-z0-9_.+!-]+", line)] == []


def test_all_packages_of_the_tests_are_pinned() -> None:
    needed = everything_needed_for("pocketmq", frozenset({"test"}))

    assert "pytest" in needed
    assert needed - pinned() == set()

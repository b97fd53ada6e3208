"""Compiles the twin of the broker's hot path when the package is built, if that is possible.

    POCKETMQ_PURE=1, or no C compiler, or it fails ──► a pure wheel, for every machine; one line says what that costs
    else ────────────────────────────────────────────► pocketmq/compiled/_turn.abi3.so, in a wheel for this kind of machine

An editable install leaves the library beside its sources, where the import finds it; a wheel leaves the sources as they are. It
uses the stable interface of Python, so one build serves 3.11 and everything newer. `release/wheels.py` builds for other machines:
LDSHARED is then a cross compiler, and _PYTHON_HOST_PLATFORM the machine.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = Path("src/pocketmq/compiled")
LIBRARY = "_turn.abi3.so"
FLAGS = ("-O2", "-fPIC", "-std=c11", "-Wall", "-Wextra", "-fvisibility=hidden")
TIMEOUT_S = 300
LOSS = (
    "PocketMQ uses Python instead of its C twins, and a broker needs three to four times the processor time for a send"
)
MOST_QUOTED = 300


class CompiledTwin(BuildHookInterface[Any]):
    """For hatchling, which finds it by the name of this file."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        sources = Path(self.root) / SOURCES
        editable = version == "editable"
        self._made = Path(tempfile.mkdtemp())
        library = sources / LIBRARY if editable else self._made / LIBRARY
        library.unlink(missing_ok=True)  # one of an earlier build must not pass for this one
        reason = compile_twin(sources, library)
        if reason:
            self.app.display_warning(f"{LOSS}: {one_line(reason)}")
        elif not editable:
            build_data["pure_python"] = False
            build_data["tag"] = f"cp311-abi3-{platform_tag()}"
            build_data["force_include"][str(library)] = f"pocketmq/compiled/{LIBRARY}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        shutil.rmtree(self._made)


def compile_twin(folder: Path, library: Path, extra: tuple[str, ...] = ()) -> str:
    """Make the library; why not, where that is not possible."""
    if os.environ.get("POCKETMQ_PURE", "0") not in ("", "0"):
        return "POCKETMQ_PURE is set"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "this Python has no global lock, and so no stable interface"
    linker = linking_command()
    if shutil.which(linker[0]) is None:
        return f"there is no C compiler called {linker[0]}"
    sources = sorted(str(path) for path in folder.glob("*.c"))
    include = sysconfig.get_paths()["include"]
    command = [*linker, *FLAGS, *extra, f"-I{include}", *sources, "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)  # noqa: S603
    if done.returncode:
        return f"{linker[0]} failed: {done.stderr.strip()[-2000:]}"
    return ""


def one_line(reason: str) -> str:
    """The first error of a compiler; most others follow from it."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    return next((line for line in lines if "error:" in line), lines[0])[:MOST_QUOTED]


def linking_command() -> list[str]:
    """What makes a library: as LDSHARED says, by the compiler of CC, by that which made this Python, or by the system's."""
    if wished := os.environ.get("LDSHARED"):
        return shlex.split(wished)
    usual, *flags = shlex.split(sysconfig.get_config_var("LDSHARED") or "cc -shared")
    if compiler := os.environ.get("CC"):
        return [*shlex.split(compiler), *flags]
    # A Python that was made on another machine, as by conda or uv, names a compiler that need not be here.
    return [usual if shutil.which(usual) or not shutil.which("cc") else "cc", *flags]


def platform_tag() -> str:
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


if __name__ == "__main__":  # by hand, after a change in C
    (SOURCES / LIBRARY).unlink(missing_ok=True)
    sys.exit(compile_twin(SOURCES, SOURCES / LIBRARY, tuple(sys.argv[1:])) or None)

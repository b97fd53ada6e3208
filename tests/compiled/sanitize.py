"""The comparison of the twins with a C twin that checks every memory access: `make sanitize`.

    python -m tests.compiled.sanitize [arguments of pytest]      all of it, thoroughly
    python -m tests.compiled.sanitize --short                    in `make test`: few examples, and one line where it cannot run

Built with AddressSanitizer and UndefinedBehaviorSanitizer, which end the process at the first access out of bounds, use after
free or overflow. Python takes its memory from malloc then, so that each piece of it is watched.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from hatch_build import LIBRARY, SOURCES, compile_twin

ROOT = Path(__file__).parents[2]
PLACE = "POCKETMQ_SANITIZED"
FLAGS = ("-g", "-O1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
TESTS = (
    "tests/compiled",
    "tests/protocol/test_body_pack.py",
    "tests/protocol/test_frames.py",
    "tests/store/index/test_record_keys.py",
    "tests/spark/decode/test_compiled_properties.py",
    "tests/spark/decode/test_compiled_records.py",
    "tests/spark/decode/test_decoding.py",
)
SHORT = (
    "--hypothesis-profile=short",
    *(f"tests/compiled/test_{name}.py" for name in ("columns", "rows", "same_leases", "same_turns", "turn")),
    "tests/protocol/test_body_pack.py",
)
"""The twins on few examples: without the build, without what counts allocations over thousands of rounds, without Spark."""


def load(library: Path) -> None:
    """Make `pocketmq.compiled` use this library instead of the installed one."""
    name = "pocketmq.compiled._turn"
    spec = spec_from_file_location(name, library)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)


def runtimes() -> list[str]:
    """The libraries that are loaded before Python, which was not linked with them. Those that are missing have no folder."""
    names = ("libasan.so", "libubsan.so")
    if shutil.which("cc") is None:
        return list(names)
    found = [
        subprocess.run(["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True) for name in names
    ]
    return [one.stdout.strip() for one in found]


def main(arguments: list[str]) -> int:
    is_short = arguments == ["--short"]
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / LIBRARY
        preloaded = runtimes()
        missing = [name for name in preloaded if not Path(name).is_absolute()]
        reason = f"there is no {missing[0]}" if missing else compile_twin(ROOT / SOURCES, library, FLAGS)
        if reason:
            sys.stderr.write(f"the compiled code is not checked with AddressSanitizer: {reason}\n")
            return 0 if is_short else 1
        surroundings = os.environ | {
            PLACE: str(library),
            "LD_PRELOAD": ":".join(preloaded),
            "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",  # the interpreter keeps memory to its end
            "PYTHONMALLOC": "malloc",
        }
        chosen = SHORT if is_short else ("--hypothesis-profile=thorough", *(arguments or TESTS))
        options = ("-p", "tests.compiled.sanitize", "-q", *chosen)
        return subprocess.run(
            [sys.executable, "-m", "pytest", *options], cwd=ROOT, env=surroundings, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
elif PLACE in os.environ:
    load(Path(os.environ[PLACE]))

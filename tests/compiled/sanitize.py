"""The comparison of the twins once more, with a compiled one that looks at every access to memory: `make sanitize`.

    python -m tests.compiled.sanitize [arguments of pytest]

Built with AddressSanitizer and UndefinedBehaviorSanitizer, which end the process at the first access out of bounds, use after
free or overflow. Python takes its memory from malloc then, so that each piece of it is watched.
"""

import os
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
    "tests/store/test_record_keys.py",
    "tests/spark/test_compiled_properties.py",
    "tests/spark/test_compiled_records.py",
    "tests/spark/test_decoding.py",
)


def load(library: Path) -> None:
    """Let `pocketmq.compiled` find this library instead of the one that was installed."""
    name = "pocketmq.compiled._turn"
    spec = spec_from_file_location(name, library)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)


def runtimes() -> str:
    """The libraries that must be there before Python is: it was not linked with them."""
    names = ("libasan.so", "libubsan.so")
    found = [
        subprocess.run(["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True) for name in names
    ]
    return ":".join(one.stdout.strip() for one in found)


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / LIBRARY
        reason = compile_twin(ROOT / SOURCES, library, FLAGS)
        if reason:
            sys.stderr.write(f"{reason}\n")
            return 1
        surroundings = os.environ | {
            PLACE: str(library),
            "LD_PRELOAD": runtimes(),
            "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",  # the interpreter keeps memory to its end
            "PYTHONMALLOC": "malloc",
        }
        options = ("-p", "tests.compiled.sanitize", "--hypothesis-profile=thorough", "-q", *(arguments or TESTS))
        return subprocess.run(
            [sys.executable, "-m", "pytest", *options], cwd=ROOT, env=surroundings, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
elif PLACE in os.environ:
    load(Path(os.environ[PLACE]))

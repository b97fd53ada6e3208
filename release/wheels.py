"""Builds and checks all wheels and the source distribution on one Linux machine.

python -m release.wheels                               into dist/
python -m release.wheels --only manylinux2014_x86_64   one of them
python -m release.wheels --once                        without the second build

zig compiles for the other machines. Each file is built twice, in different folders, and must be the same to the byte: who builds the
same commit with the same tools gets the files that are published. SHA256SUMS has their checksums.
"""

import argparse
import json
import os
import shlex
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from packaging.metadata import parse_email

import pocketmq
from release.checks import check_wheel
from release.contents import SUMS, bill_of_materials, write_checksums
from release.programs import ROOT, WHEELS, Failed, main_of, run, say, source_date
from release.targets import PURE, TARGETS, Target

NAME: Final = f"pocketmq-{pocketmq.__version__}"
BILL: Final = f"{NAME}.cdx.json"


def build_wheel(target: Target | None, folder: Path, made_s: int) -> Path:
    """The wheel of a target; the pure one without a target."""
    environ = _environ(made_s)
    if target is None:
        environ["POCKETMQ_PURE"] = "1"
        expected = folder / f"{NAME}-py3-none-{PURE}.whl"
    else:
        environ |= {
            "LDSHARED": shlex.join([sys.executable, "-m", "release.link", target.platform]),
            "_PYTHON_HOST_PLATFORM": target.platform,
        }
        expected = folder / f"{NAME}-cp311-abi3-{target.platform}.whl"
    printed = run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], environ=environ)
    if not expected.exists():
        raise Failed(f"{expected.name} was not built:\n{printed}")
    return expected


def build_source(folder: Path, made_s: int) -> Path:
    run([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder], environ=_environ(made_s))
    return folder / f"{NAME}.tar.gz"


def _environ(made_s: int) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if name not in ("CC", "LDSHARED", "CFLAGS")}
    return kept | {"SOURCE_DATE_EPOCH": str(made_s), "POCKETMQ_PURE": "0"}


def build_all(folder: Path, only: Sequence[str], made_s: int) -> list[Path]:
    built = [build_wheel(target, folder, made_s) for target in TARGETS if not only or target.platform in only]
    if not only or PURE in only:
        built.append(build_wheel(None, folder, made_s))
    if not only:
        built.append(build_source(folder, made_s))
    return built


def check_repeatable(built: Sequence[Path], only: Sequence[str], made_s: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        again = build_all(Path(folder), only, made_s)
        different = [
            one.name for one, other in zip(built, again, strict=True) if one.read_bytes() != other.read_bytes()
        ]
    if different:
        raise Failed(f"a second build differs: {', '.join(different)}")


def requirements_of(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        found, _ = parse_email(archive.read(f"{NAME}.dist-info/METADATA"))
    return found.get("requires_dist", [])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=WHEELS)
    parser.add_argument("--only", action="append", default=[], choices=[PURE, *(one.platform for one in TARGETS)])
    parser.add_argument("--once", action="store_true", help="do not build again to compare")
    options = parser.parse_args(arguments)
    return main_of(lambda: make(options.folder, options.only, once=options.once))


def make(folder: Path, only: Sequence[str], *, once: bool) -> None:
    made_s = source_date()
    folder.mkdir(exist_ok=True)
    for pattern in ("pocketmq-*.whl", "pocketmq-*.tar.gz", "pocketmq-*.cdx.json", SUMS):
        for old in folder.glob(pattern):
            old.unlink()
    built = build_all(folder, only, made_s)
    for path in built:
        if path.suffix == ".whl":
            check_wheel(path)
    if not once:
        check_repeatable(built, only, made_s)
    wheel = next(path for path in built if path.suffix == ".whl")
    bill = folder / BILL
    bill.write_text(
        json.dumps(bill_of_materials(pocketmq.__version__, built, requirements_of(wheel), made_s), indent=1) + "\n",
        "utf-8",
    )
    write_checksums(folder, [*built, bill])
    for path in [*built, bill]:
        say(f"{path.stat().st_size:>10,}  {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}")


if __name__ == "__main__":
    sys.exit(main())

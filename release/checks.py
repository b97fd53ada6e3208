"""What a wheel must be before it is published.

every wheel      holds one library, or none if it is pure; no C source
manylinux, musl  auditwheel finds nothing that machines with this tag may lack
with a library   abi3audit finds only functions of Python 3.11's stable interface
macOS            not newer than the tag says; for arm64 also a signature, without which macOS does not load it
"""

import re
import struct
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Final, NamedTuple

from release.programs import Failed, run
from release.targets import PURE

ABI: Final = "3.11"
LIBRARY: Final = "pocketmq/compiled/_turn.abi3.so"
_MACH_64: Final = 0xFEEDFACF
_HEAD: Final = struct.Struct("<8I")
_COMMAND: Final = struct.Struct("<2I")
_LC_CODE_SIGNATURE: Final = 0x1D
_LC_BUILD_VERSION: Final = 0x32
_LC_VERSION_MIN_MACOSX: Final = 0x24
_CONSISTENT: Final = re.compile(r'platform tag:\s*"(\w+)"')


class MacLibrary(NamedTuple):
    oldest: tuple[int, int]
    """The oldest macOS that loads it."""
    is_signed: bool


def check_wheel(wheel: Path) -> None:
    """Failed, with the reason."""
    platform = wheel.stem.rpartition("-")[2]
    with zipfile.ZipFile(wheel) as archive:
        held = archive.namelist()
        library = archive.read(LIBRARY) if LIBRARY in held else b""
    natives = [name for name in held if name.endswith((".so", ".c", ".h", ".dylib"))]
    expected = [] if platform == PURE else [LIBRARY]
    if natives != expected:
        raise Failed(f"{wheel.name} holds {natives}, expected {expected}")
    if platform == PURE:
        return
    run([sys.executable, "-m", "abi3audit", "--strict", "--assume-minimum-abi3", ABI, wheel])
    if platform.startswith("macosx"):
        check_mac(wheel.name, platform, mac_library(library))
    else:
        _check_linux(wheel, platform)


def _check_linux(wheel: Path, platform: str) -> None:
    with tempfile.TemporaryDirectory() as empty:  # the libraries of this machine are not those of the target
        shown = " ".join(run([sys.executable, "-m", "auditwheel", "show", f"--ldpaths={empty}", wheel]).split())
    found = _CONSISTENT.search(shown)
    if found is None or not is_as_old(found[1], platform):
        raise Failed(f"auditwheel does not accept {wheel.name}: {shown}")


def is_as_old(found: str, wanted: str) -> bool:
    """Whether a library with the tag `found` runs where `wanted` does: the same C library, not newer."""
    first, second = _c_library(found), _c_library(wanted)
    return (first[0], first[2]) == (second[0], second[2]) and first[1] <= second[1]


def _c_library(tag: str) -> tuple[str, tuple[int, int], str]:
    tag = tag.replace("manylinux2014", "manylinux_2_17").replace("manylinux1", "manylinux_2_5")
    if (found := re.fullmatch(r"(manylinux|musllinux)_(\d+)_(\d+)_(\w+)", tag)) is None:
        return tag, (0, 0), ""
    return found[1], (int(found[2]), int(found[3])), found[4]


def mac_library(data: bytes) -> MacLibrary:
    """Read the head of a library for macOS: a table of commands for the loader."""
    magic, _, _, _, commands, *_ = _HEAD.unpack_from(data)
    if magic != _MACH_64:
        raise Failed("the library is not one for macOS")
    oldest, is_signed, at = 0, False, _HEAD.size
    for _ in range(commands):
        command, size = _COMMAND.unpack_from(data, at)
        if command == _LC_BUILD_VERSION:
            oldest = struct.unpack_from("<I", data, at + 12)[0]
        elif command == _LC_VERSION_MIN_MACOSX:
            oldest = struct.unpack_from("<I", data, at + 8)[0]
        is_signed |= command == _LC_CODE_SIGNATURE
        at += size
    return MacLibrary((oldest >> 16, oldest >> 8 & 0xFF), is_signed)


def check_mac(name: str, platform: str, found: MacLibrary) -> None:
    numbers: Any = re.fullmatch(r"macosx_(\d+)_(\d+)_(\w+)", platform)
    if found.oldest > (int(numbers[1]), int(numbers[2])):
        raise Failed(f"{name} needs macOS {found.oldest[0]}.{found.oldest[1]}, which is newer than its tag")
    if numbers[3] == "arm64" and not found.is_signed:
        raise Failed(f"{name} holds a library without a signature")

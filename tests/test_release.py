"""The tools that build and check a release. `make wheels` and `make installs` run them whole."""

import re
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatch_build import LOSS, one_line
from release import checks, contents, programs
from release.pythons import VERSIONS
from release.targets import PURE, TARGETS

import pocketmq

ROOT = Path(__file__).parents[1]


def wheel(folder: Path, platform: str, *names: str) -> Path:
    path = folder / f"pocketmq-{pocketmq.__version__}-cp311-abi3-{platform}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, b"content")
    return path


def mac_head(*commands: bytes) -> bytes:
    """A library of macOS with these commands for the loader."""
    body = b"".join(commands)
    return struct.pack("<8I", 0xFEEDFACF, 0, 0, 6, len(commands), len(body), 0, 0) + body


OLDEST_11 = struct.pack("<6I", 0x32, 24, 1, 11 << 16, 15 << 16, 0)
SIGNATURE = struct.pack("<4I", 0x1D, 16, 0, 0)


def test_each_target_has_a_tag_of_its_own() -> None:
    assert len({target.platform for target in TARGETS}) == len(TARGETS) == len({target.zig for target in TARGETS})


@pytest.mark.parametrize(
    ("found", "wanted", "fits"),
    [
        ("manylinux_2_17_x86_64", "manylinux2014_x86_64", True),
        ("manylinux_2_5_x86_64", "manylinux2014_x86_64", True),
        ("manylinux_2_28_x86_64", "manylinux2014_x86_64", False),
        ("manylinux_2_17_aarch64", "manylinux2014_x86_64", False),
        ("musllinux_1_1_x86_64", "musllinux_1_2_x86_64", True),
        ("manylinux_2_17_x86_64", "musllinux_1_2_x86_64", False),
        ("linux_x86_64", "manylinux2014_x86_64", False),
    ],
)
def test_a_library_fits_a_tag_of_its_c_library_that_is_not_older(found: str, wanted: str, fits: bool) -> None:
    assert checks.is_as_old(found, wanted) is fits


def test_a_pure_wheel_with_a_library_is_refused(tmp_path: Path) -> None:
    with pytest.raises(programs.Failed, match=r"holds \['pocketmq/x\.so'\], expected \[\]"):
        checks.check_wheel(wheel(tmp_path, PURE, "pocketmq/x.so"))


def test_a_wheel_for_a_machine_without_its_library_is_refused(tmp_path: Path) -> None:
    with pytest.raises(programs.Failed, match=r"holds \[\], expected"):
        checks.check_wheel(wheel(tmp_path, "manylinux2014_x86_64", "pocketmq/__init__.py"))


def test_the_head_of_a_library_of_macos_is_read() -> None:
    assert checks.mac_library(mac_head(OLDEST_11, SIGNATURE)) == ((11, 0), True)
    assert checks.mac_library(mac_head(OLDEST_11)) == ((11, 0), False)
    with pytest.raises(programs.Failed, match="not one for macOS"):
        checks.mac_library(b"\x7fELF" + bytes(64))


@pytest.mark.parametrize(
    ("platform", "commands", "reason"),
    [
        ("macosx_10_9_x86_64", [OLDEST_11], "needs macOS 11.0, which is newer than its tag"),
        ("macosx_11_0_arm64", [OLDEST_11], "without a signature"),
    ],
)
def test_a_library_that_macos_would_not_load_is_refused(platform: str, commands: list[bytes], reason: str) -> None:
    with pytest.raises(programs.Failed, match=reason):
        checks.check_mac("x.whl", platform, checks.mac_library(mac_head(*commands)))


def test_the_bill_of_materials_lists_files_and_libraries(tmp_path: Path) -> None:
    file = wheel(tmp_path, PURE)
    requirements = ["msgspec>=0.19", "lz4>=4.3; extra == 'compression'"]

    bill = contents.bill_of_materials("1.2.3", [file], requirements, made_s=0, builders=["hatchling"])

    assert bill == contents.bill_of_materials("1.2.3", [file], requirements, made_s=0, builders=["hatchling"])
    assert bill["metadata"]["timestamp"] == "1970-01-01T00:00:00Z"
    listed, msgspec, lz4 = bill["components"]
    assert listed["hashes"] == [{"alg": "SHA-256", "content": contents.sha256(file)}]
    assert (msgspec["scope"], lz4["scope"]) == ("required", "optional")
    assert bill["dependencies"][0] == {"ref": "pkg:pypi/pocketmq@1.2.3", "dependsOn": ["pkg:pypi/msgspec"]}


def test_checksums_are_in_the_form_of_sha256sum(tmp_path: Path) -> None:
    file = wheel(tmp_path, PURE)

    sums = contents.write_checksums(tmp_path, [file])

    command = ["sha256sum", "--check", sums.name]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout == f"{file.name}: OK\n"


def test_the_time_of_a_release_is_that_of_the_environment() -> None:
    assert programs.source_date({"SOURCE_DATE_EPOCH": "1700000000"}) == 1_700_000_000


def test_a_program_that_fails_is_quoted() -> None:
    with pytest.raises(programs.Failed, match=r"ended with 3:\nwhy"):
        programs.run([sys.executable, "-c", "import sys; print('why'); sys.exit(3)"])
    with pytest.raises(programs.Failed, match="no-such-program is not installed"):
        programs.run(["no-such-program"])


def test_a_failed_compiler_is_reported_in_one_line() -> None:
    text = (
        "cc failed: In file included from a.c:1:\nturn.h:22:10: fatal error: Python.h: No such file\n 22 | #include\n"
    )

    assert one_line(text) == "turn.h:22:10: fatal error: Python.h: No such file"
    assert one_line("there is no C compiler called cc") == "there is no C compiler called cc"
    assert "\n" not in LOSS


def test_the_tested_versions_are_those_that_the_package_names() -> None:
    named = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text("utf-8"))

    assert [version for version in VERSIONS if not version.endswith("t")] == named

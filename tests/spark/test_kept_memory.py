"""Workers of Spark keep memory; programs that use the connector by themselves decide for themselves."""

import subprocess
import sys

from pocketmq.spark.python_processes import keep_memory


def test_only_workers_of_spark_change_their_memory_settings() -> None:
    assert not keep_memory()


AS_A_WORKER = """
import gc, sys, types
sys.modules["__main__"].__spec__ = types.SimpleNamespace(name="pyspark.daemon")
from pocketmq.spark.python_processes import keep_memory
keep_memory()
frozen = gc.get_freeze_count()
keep_memory()
print(frozen > 1000, gc.get_freeze_count() == frozen)
"""


def test_a_worker_of_spark_freezes_its_imported_objects_once() -> None:
    done = subprocess.run([sys.executable, "-c", AS_A_WORKER], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.split() == ["True", "True"]

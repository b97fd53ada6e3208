"""Without numpy or pyarrow the rest of PocketMQ works, and the connector names the command to install them."""

import subprocess
import sys

import pytest

from pocketmq.errors import install_command

PURE = [
    "options.connection_options",
    "options.options",
    "options.read_options",
    "options.write_options",
    "python_processes",
    "read.bounds",
    "broker_facts",
    "read.data_loss",
    "read.offsets",
    "read.planning",
    "read.pushdown",
    "schema",
]


def run_without(library: str, code: str) -> subprocess.CompletedProcess[str]:
    blocked = f"import sys; sys.modules[{library!r}] = None\n{code}"
    return subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("library", ["numpy", "pyarrow"])
def test_a_missing_library_is_named_with_the_command_to_install_it(library: str) -> None:
    pytest.importorskip("pyarrow", reason="blocking one library needs the other")

    done = run_without(library, "import pocketmq.spark.decode.decoding")

    assert (
        f"MissingLibrary: the Spark connector needs the library {library}; run {install_command('spark')}, for the driver"
        in done.stderr
    )


@pytest.mark.parametrize(
    "planning", ["reader(wanted).partitions()", "streamReader(wanted).prepareForTriggerAvailableNow()"]
)
@pytest.mark.parametrize("library", ["numpy", "pyarrow"])
def test_the_driver_reports_a_missing_library_before_any_task(library: str, planning: str) -> None:
    pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

    done = run_without(
        library,
        f"""
from pyspark.sql.types import BinaryType, StructField, StructType
from pocketmq.spark import RocketMQSource
wanted = StructType([StructField("value", BinaryType())])
RocketMQSource({{"rocketmq.namesrv.addr": "any:9876", "subscribe": "orders"}}).{planning}
""",
    )

    assert (
        f"MissingLibrary: the Spark connector needs the library {library}; run {install_command('spark')}"
        in done.stderr
    )


def test_the_rules_for_columns_need_no_library() -> None:
    imports = "\n".join(f"import pocketmq.spark.{name}" for name in PURE)
    done = run_without("numpy", f"sys.modules['pyarrow'] = sys.modules['pyspark'] = None\n{imports}\nprint('good')")

    assert (done.stdout, done.stderr) == ("good\n", "")


def test_a_read_imports_nothing_of_a_write() -> None:
    pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
    code = "import sys\nimport pocketmq.spark.read.range_reading, pocketmq.spark.read.metadata\nprint([name for name in sys.modules if '.sink_' in name])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)

    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_finding_the_source_imports_only_spark() -> None:
    pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
    heavy = "{'numpy', 'pyarrow', 'pocketmq.client', 'pocketmq.spark.source'}"

    done = run_without(
        "numpy",
        f"import pyspark_rocketmq as found\nprint(found.DefaultSource.name(), {heavy} & set(sys.modules) - {{'numpy'}})",
    )

    assert (done.stdout, done.stderr) == ("rocketmq set()\n", "")


def test_planning_a_read_imports_no_decoder_and_no_producer() -> None:
    """Spark starts such a process for every query."""
    pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
    modules = "'numpy pyarrow pocketmq.client.public_names pocketmq.client.producer.producer pocketmq.spark.decode.decoding'.split()"

    done = run_without(
        "pyarrow",
        f"""
sys.modules["numpy"] = None
from pyspark.sql.types import BinaryType, StructField, StructType
from pocketmq.spark import RocketMQSource
source, value = RocketMQSource({{"rocketmq.namesrv.addr": "any:9876", "subscribe": "orders"}}), [StructField("value", BinaryType())]
made = source.reader(StructType(value)), source.streamReader(StructType(value))
print([name for name in {modules} if sys.modules.get(name)], *(type(one).__name__ for one in made))
""",
    )

    assert (done.stdout, done.stderr) == ("[] TopicReader TopicStreamReader\n", "")


def test_planning_or_committing_a_write_imports_no_decoder_and_no_client() -> None:
    """Spark starts a process for either of them, besides those of the tasks."""
    pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
    modules = "'numpy pyarrow pocketmq.client pocketmq.spark.write.sink_task'.split()"

    done = run_without(
        "pyarrow",
        f"""
sys.modules["numpy"] = None
import pickle
from pyspark.sql.types import StructType
from pocketmq.spark import RocketMQSource
source = RocketMQSource({{"rocketmq.namesrv.addr": "any:9876", "topic": "orders"}})
made = source.writer(StructType([]), False), source.streamWriter(StructType([]), False)
pickle.loads(pickle.dumps(made[0])).commit([])
print([name for name in {modules} if sys.modules.get(name)], *(type(one).__name__ for one in made))
""",
    )

    assert (done.stdout, done.stderr) == ("[] TopicWriter TopicStreamWriter\n", "")

"""Errors of Spark become one sentence."""

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pyspark.errors import AnalysisException

from pocketmq.errors import InvalidSetting, PipelineFailed
from pocketmq.pipelines.core.libraries import SHOWN_CHARS, error_text, pipeline_failures

TASK = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage failure: Task 0 failed
Traceback (most recent call last):
  File "worker.py", line 1, in main
pocketmq.errors.InvalidMessage: row 3 of the partition: the column value is empty

	at org.apache.spark.api.python.BasePythonRunner
Caused by: org.apache.spark.SparkException: gone SQLSTATE: XXKST"""

BATCH = """[STREAM_FAILED] x [FOREACH_BATCH_USER_FUNCTION_ERROR] y
pyspark.errors.exceptions.captured.IllegalArgumentException: no column
pyspark.errors.exceptions.captured.StreamingQueryException: [STREAM_FAILED] x"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (TASK, "row 3 of the partition: the column value is empty"),
        ("java.io.IOException: No space left on device", "the disk is full: No space left on device. Free some space"),
        ("x\nValueError: it is odd\n\tat org", "ValueError: it is odd"),
        (
            "[STREAM_FAILED] x [PATH_NOT_FOUND] Path does not exist: /x. SQLSTATE: 42K03",
            "Path does not exist: /x. [PATH_NOT_FOUND]",
        ),
        ("An error\n: java.lang.IllegalStateException: no lock\n\tat org", "IllegalStateException: no lock"),
        ("[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: oh no. SQLSTATE: X", "oh no."),
        (
            BATCH,
            "IllegalArgumentException: no column",
        ),
        (
            "x\nModuleNotFoundError: No module named 'pocketmq'\n",
            "an executor does not have the module pocketmq: run pip install 'pocketmq[spark]' in the Python of all executors",
        ),
        ("just this\nand more", "just this"),
    ],
)
def test_an_error_of_spark_is_reduced_to_its_first_sentence(text: str, sentence: str) -> None:
    assert error_text(RuntimeError(text)).startswith(sentence)


def test_a_sentence_is_limited_and_never_empty() -> None:
    assert len(error_text(RuntimeError("x" * 5000))) == SHOWN_CHARS + 1
    assert error_text(RuntimeError("")) == "RuntimeError"


def test_errors_of_spark_become_failures_and_others_are_unchanged() -> None:
    def fail(error: Exception) -> None:
        with pipeline_failures():
            raise error

    with pytest.raises(PipelineFailed, match=r"^No such column\. \[UNRESOLVED\]$"):
        fail(AnalysisException("[UNRESOLVED] No such column. SQLSTATE: 42703\n\tat org.apache"))
    with pytest.raises(InvalidSetting, match="odd"):
        fail(InvalidSetting("odd"))
    with pytest.raises(ZeroDivisionError):
        fail(ZeroDivisionError())

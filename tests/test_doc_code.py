"""The Python code of the documentation: all of it compiles, and what no other test runs is run here, with sample
data.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.doc_pages import PAGES, Block, blocks

import pocketmq
from pocketmq.client.blocking import BlockingClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ELSEWHERE = {
    "README.md": "tests/test_examples.py: it is an example, word for word",
    "reference/nameserver.md": "tests/nameserver/test_document.py",
    "guides/cdc.md": "needs a library of Maven; conformance/lake/change_checks.py reads such tables",
    "guides/security.md": "names a server of the reader",
    "start/data-engineer.md": "tests/test_start_pages.py",
    "start/developer.md": "tests/test_start_pages.py",
    "guides/testing.md": "tests/testing/test_guide.py and tests/test_pytest_plugin.py",
}
"""Pages whose code another test runs, or that cannot be run."""
ON_A_SERVER = (
    "guides/consumers.md",
    "guides/delays.md",
    "guides/deploying.md",
    "guides/doctor.md",
    "guides/fastapi.md",
    "guides/faststream.md",
    "guides/celery.md",
    "guides/taskiq.md",
    "guides/metrics.md",
    "guides/ordering.md",
    "guides/retries.md",
    "guides/sending.md",
    "guides/transactions.md",
    "guides/typed-messages.md",
    "reference/api.md",
    "reference/errors.md",
    "reference/options.md",
)
ON_SPARK = ("guides/pipelines.md", "guides/spark-read.md", "guides/spark-write.md")


class Around(NamedTuple):
    """The preparation of a part of a program, and the check that it works."""

    before: str = ""
    after: str = ""


ORDERS = 'spark.createDataFrame([("1", b"{}", "k")], "id string, value binary, keys string")'
AROUND = {
    # clients
    "raise DeadLetter(": Around(
        before="from pocketmq import Admin",
        after="with Admin('127.0.0.1:9876') as admin: until(lambda: admin.dead_letters.read('bank'))",
    ),
    "def track(": Around(after="until(lambda: len(seen) == 3); assert seen == ['placed', 'paid', 'shipped']"),
    "return ConsumeResult.COMMIT": Around(after="until(lambda: len(rows) == 3)"),
    "def bill(order: Order, message: StoredMessage": Around(after="until(lambda: totals == {'Ann': 350, 'Ben': 1200})"),
    "def ship(": Around(after="until(lambda: paid == ['heavy'])"),
    "def bill(message": Around(after="until(lambda: received == [b'1'])"),
    "charts.poll(": Around(after="assert [message.body for message in messages] == [b'1']"),
    "print(reply.body)": Around(after="assert reply.body == b'5'"),
    # spark-read.md and spark-write.md
    'start("/data/orders")': Around(after="query.stop()"),
    'rows.selectExpr("value", "keys").write': Around(f"rows = {ORDERS}"),
    '.writeStream.format("rocketmq")': Around(after="query.stop()"),
    "writeBatch=number": Around(after=f"each({ORDERS}.select('value', 'keys'), 0)"),
    # pipelines.md
    "read_json, spark_session": Around(after="assert (orders.good.count(), orders.bad.count()) == (1, 1)"),
    'write_dead_letters(bad, "orders-dead"': Around("from pocketmq.pipelines import *", "each(orders.rows, 0)"),
    "Contract.of(": Around(
        "rows = spark.sql(\"SELECT '1' id, 5.0 amount, '2026-01-01' day, '12345' zip, 'red' colour, 'ada' buyer\")",
        "assert (checked.good.count(), checked.bad.count()) == (1, 0)",
    ),
    "run_until_caught_up(query": Around(
        "stream = spark.readStream.format('rocketmq').options(**address, subscribe='orders', startingOffsets='earliest')\n"
        "query = stream.load().writeStream.format('noop').option('checkpointLocation', '/data/noop').start()",
        "assert summary.messages == 2",
    ),
    "LateRows(spark": Around(after="each(spark.sql(\"SELECT TIMESTAMP '2026-01-01 12:00:00' at, 1 number\"), 0)"),
    # faststream.md: FastStream reads the file of a test, which a block does not have
    "TestRocketBroker(": Around("import warnings; warnings.filterwarnings('ignore', category=RuntimeWarning)"),
    "Celery(": Around(after="app.close()"),
    # doctor.md and metrics.md
    "doctor.examine(": Around(after="assert report.steps"),
    "start_http_server(9464": Around(after="producer.close() if hasattr(producer, 'close') else None"),
}
"""By what stands in a block."""


@pytest.mark.parametrize(
    "block", [block for page in PAGES for block in blocks(page) if block.language == "python"], ids=str
)
def test_the_code_compiles(block: Block) -> None:
    compile(block.text, str(block), "exec")


@pytest.mark.parametrize("page", ON_A_SERVER)
def test_the_code_of_a_page_runs(page: str) -> None:
    names: dict[str, Any] = {"until": until, "__name__": "__main__"}
    with pocketmq.Server() as server:
        try:
            run_page(page, server.name_server, Path("/unused"), names)
        finally:
            for client in [value for value in names.values() if isinstance(value, BlockingClient)]:
                client.stop()


def until(is_so: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


@pytest.mark.parametrize("page", ON_SPARK)
def test_the_code_on_spark_runs(
    spark: "SparkSession", tmp_path: Path, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    added: list[Any] = []
    monkeypatch.setattr(type(spark.streams), "addListener", lambda _, listener: added.append(listener))
    with (
        pocketmq.Server() as server,
        pocketmq.Admin(server.name_server) as admin,
        pocketmq.Producer(server.name_server) as producer,
    ):
        for topic in ("orders", "orders-dead", "invoices"):
            admin.topics.create(topic, queues=2)
        producer.send("orders", b'{"id": "1", "city": "Rome", "amount": 20.5}')
        producer.send("orders", b'{"id": "2", "city": "Oslo", "amount": "a lot"}')
        run_page(page, server.name_server, tmp_path, {"spark": spark})
    assert len(added) == (page == "guides/spark-read.md"), "kept from the session, which other tests use"


def run_page(page: str, name_server: str, folder: Path, names: dict[str, Any]) -> None:
    """Run the blocks of a page in their order, as one program, with a server and folders of the test."""
    for block in blocks(page):
        if block.language != "python":
            continue
        around = next((around for known, around in AROUND.items() if known in block.text), Around())
        for code in (around.before, block.text, around.after):
            text = code.replace("127.0.0.1:9876", name_server).replace('"/data/', f'"{folder}/').replace("9464", "0")
            text = text.replace(".run()", ".start()")  # without waiting for a signal
            exec(compile(text.replace("'/data/", f"'{folder}/"), str(block), "exec"), names)


def test_every_page_is_tested() -> None:
    with_code = {page for page in PAGES if any(block.language == "python" for block in blocks(page))}

    assert with_code == {*ELSEWHERE, *ON_A_SERVER, *ON_SPARK}

"""The Python code of the documentation: all of it compiles, and what no other test runs is run here, with sample data."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.doc_pages import PAGES, Block, blocks

import pocketmq

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ELSEWHERE = {
    "README.md": "tests/test_examples.py: it is an example, word for word",
    "reference/options.md": "parts of programs; the examples are whole ones",
    "reference/nameserver.md": "tests/nameserver/test_document.py",
    "guides/security.md": "names a server of the reader",
    "reference/configuration.md": "tests/cli/test_document.py",
    "start/data-engineer.md": "tests/test_start_pages.py",
    "start/developer.md": "tests/test_start_pages.py",
    "start/operator.md": "tests/test_start_pages.py",
    "guides/testing.md": "tests/testing/test_guide.py and tests/test_pytest_plugin.py",
}
"""Pages whose code another test runs, or that cannot be run."""


class Around(NamedTuple):
    """What a part of a program needs before it, and what shows that it works."""

    before: str = ""
    after: str = ""


ORDERS = 'spark.createDataFrame([("1", b"{}", "k")], "id string, value binary, keys string")'
AROUND = {
    # spark.md
    "# messages to rows": Around(f"rows = {ORDERS}", "for query in spark.streams.active: query.stop()"),
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


@pytest.mark.parametrize("page", ["guides/doctor.md", "guides/metrics.md"])
def test_the_code_of_a_page_runs(page: str) -> None:
    with pocketmq.Server() as server:
        run_page(page, server.name_server, Path("/unused"), {})


@pytest.mark.parametrize("page", ["reference/spark.md", "guides/pipelines.md"])
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
        run_page(page, server.name_server, tmp_path, {"spark": spark, "address": address_of(server)})
    assert len(added) == (page == "reference/spark.md"), "kept from the session, which other tests use"


def address_of(server: pocketmq.Server) -> dict[str, str]:
    return {"rocketmq.namesrv.addr": server.name_server}


def run_page(page: str, name_server: str, folder: Path, names: dict[str, Any]) -> None:
    """Run the blocks of a page in their order, as one program, with a server and folders of the test."""
    for block in blocks(page):
        if block.language != "python":
            continue
        around = next((around for known, around in AROUND.items() if known in block.text), Around())
        for code in (around.before, block.text, around.after):
            text = code.replace("127.0.0.1:9876", name_server).replace('"/data/', f'"{folder}/').replace("9464", "0")
            exec(compile(text.replace("'/data/", f"'{folder}/"), str(block), "exec"), names)


def test_no_page_is_forgotten() -> None:
    run = {"guides/doctor.md", "guides/metrics.md", "reference/spark.md", "guides/pipelines.md"}
    with_code = {page for page in PAGES if any(block.language == "python" for block in blocks(page))}

    assert with_code - set(ELSEWHERE) - run == set()

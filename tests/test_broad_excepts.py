"""Every `except Exception`, `except BaseException` and bare `except` of the source, with the reason why it is broad.

A broad handler is right at the boundary of a task, a thread or a request, around code of the user, and where a failed step
is undone on a hot path before the error is raised again; elsewhere an ExitStack undoes steps. Any other handler names the
errors that it expects.
"""

import ast
from collections.abc import Iterator
from typing import Final

from tests.source_code import Source, sources

TASK: Final = "task boundary: logs the error, and the task continues"
REQUEST: Final = "request boundary: the error becomes the response, or closes the connection"
THREAD: Final = "thread boundary: another thread gets the error"
USER: Final = "runs code of the user"
UNDO: Final = "takes a failed step back and raises the error again"
TELL: Final = "adds to the error and raises it again"
SPARK: Final = "runs Spark, whose libraries have many kinds of errors"

BROAD: Final[dict[str, dict[str, int]]] = {
    "broker.broker": {TASK: 1},
    "broker.messages": {UNDO: 2, TASK: 1},
    "broker.pop.revive": {UNDO: 1},
    "broker.registration": {TASK: 1},
    "broker.requests.log_turn": {UNDO: 1, REQUEST: 4},
    "broker.requests.turns": {REQUEST: 5},
    "cli.commands": {TELL: 1},
    "client.blocking": {UNDO: 1, TASK: 1},
    "client.cluster.rpc": {USER: 2},
    "client.consumer.concurrent_listening": {TASK: 1},
    "client.consumer.consume_result": {USER: 1},
    "client.consumer.dispatch": {USER: 1},
    "client.consumer.group_member": {UNDO: 1},
    "client.consumer.jobs": {USER: 2},
    "client.consumer.leases": {UNDO: 1},
    "client.consumer.offsets": {USER: 1},
    "client.consumer.orderly_listening": {TASK: 1},
    "client.consumer.pull_consumer": {USER: 1},
    "client.consumer.pop_loop": {TASK: 1},
    "client.consumer.pull_loop": {TASK: 3},
    "client.consumer.push_consumer": {UNDO: 1},
    "client.consumer.rebalance": {TASK: 1, USER: 1},
    "client.hooks": {USER: 2},
    "client.producer.attempts": {TELL: 1},
    "client.producer.blocking_producer": {USER: 2},
    "client.producer.outbox": {UNDO: 1},
    "client.producer.producer": {USER: 1},
    "client.producer.transactions": {UNDO: 1, USER: 1},
    "demo.day": {THREAD: 1, SPARK: 1},
    "demo.pipeline": {SPARK: 1},
    "files": {UNDO: 1},
    "integrations.faststream.endpoints": {USER: 1},
    "integrations.faststream.testing": {UNDO: 1},
    "metrics.page": {REQUEST: 1},
    "net.blocking": {UNDO: 1},
    "net.connection": {REQUEST: 1},
    "net.loops": {TASK: 1},
    "net.peer": {REQUEST: 2, UNDO: 1},
    "net.portal": {THREAD: 1, UNDO: 1},
    "pipelines.archive.lake": {TELL: 1},
    "pipelines.core.running": {SPARK: 1},
    "pipelines.core.sessions": {SPARK: 1},
    "pipelines.jobs.resending": {SPARK: 1},
    "protocol.pending_calls": {UNDO: 1},
    "proxy.receiving": {UNDO: 1},
    "proxy.sending": {UNDO: 1},
    "proxy.server": {REQUEST: 1},
    "spark.lineage": {USER: 2},
    "store.index.growing_index_file": {UNDO: 1},
    "store.log.commit_log": {UNDO: 6, TASK: 1},
    "store.log.log_writer": {THREAD: 2},
    "store.message_store": {UNDO: 6, TASK: 1},
    "store.queues.queues": {UNDO: 1},
    "store.receiving": {UNDO: 1},
    "store.worker": {THREAD: 1},
    "testing.virtual_loop": {TELL: 1},
}
"""Module below `pocketmq` → reason → how many handlers."""


def broad_handlers(source: Source) -> Iterator[int]:
    """The lines of handlers that catch every error."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ExceptHandler):
            kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            if any(kind is None or ast.unparse(kind) in ("Exception", "BaseException") for kind in kinds):
                yield node.lineno


def test_every_broad_handler_has_a_reason() -> None:
    found = {source.module.removeprefix("pocketmq."): list(broad_handlers(source)) for source in sources()}
    counted = {module: len(lines) for module, lines in found.items() if lines}

    assert counted == {module: sum(reasons.values()) for module, reasons in BROAD.items()}


def test_broad_handlers_are_found() -> None:
    broad = [
        "try: ...\nexcept Exception: ...",
        "try: ...\nexcept BaseException as error: ...",
        "try: ...\nexcept: ...",
        "try: ...\nexcept (ValueError, Exception): ...",
    ]

    assert [list(broad_handlers(Source("pocketmq.made", ast.parse(text)))) for text in broad] == [[2]] * len(broad)


def test_a_handler_that_names_its_errors_is_not_broad() -> None:
    text = "try: ...\nexcept ValueError: ...\nexcept (OSError, ExceptionGroup): ..."

    assert list(broad_handlers(Source("pocketmq.made", ast.parse(text)))) == []

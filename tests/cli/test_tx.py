"""`pocketmq tx` as a user meets it, on a real server."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.cli.running_cluster import RunningCluster

import pocketmq

DEADLINE_S = 30


@contextmanager
def left_open(cluster: RunningCluster, topic: str) -> Iterator[str]:
    """A transaction whose producer does not know how it ends."""
    check = lambda _: pocketmq.TransactionState.UNKNOWN  # noqa: E731
    with pocketmq.Producer(cluster.name_server, group="payers", check=check) as producer:
        transaction = producer.transaction(topic)
        sent = transaction.send(b"1")
        transaction.leave_open()
        assert sent.transaction_id
        yield sent.transaction_id


def seen(condition: Callable[[], bool]) -> bool:
    """Whether it becomes true in time: brokers store decisions every few seconds."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
    return condition()


def test_undecided_transactions_are_listed(own_cluster: RunningCluster) -> None:
    assert "No undecided transactions" in own_cluster.run("tx", "ls").stderr
    check = lambda _: pocketmq.TransactionState.UNKNOWN  # noqa: E731
    with pocketmq.Producer(own_cluster.name_server, group="payers", check=check) as producer:
        transaction = producer.transaction("paid")
        sent = transaction.send(b"1")
        transaction.leave_open()
        producer.transaction("paid").send(b"2")

        rows = own_cluster.ask("tx", "ls")
        few = own_cluster.run("tx", "ls", "--limit", 1)

    assert rows[0]["transaction_id"] == sent.transaction_id
    assert [(row["topic"], row["producer_group"], row["broker"]) for row in rows] == [
        ("paid", "payers", "broker-a")
    ] * 2
    assert rows[0]["age_ms"] >= 0
    assert "payers" in few.stdout
    assert "There may be more" in few.stderr


@pytest.mark.parametrize("word", ["--commit", "--rollback"])
def test_a_transaction_is_decided_instead_of_its_producer(cluster: RunningCluster, word: str) -> None:
    topic = f"decided{word}"
    with left_open(cluster, topic) as transaction_id:
        resolve = ("tx", "resolve", transaction_id, word)

        unanswered = cluster.run(*resolve)
        [dry] = cluster.ask(*resolve, "--dry-run")
        [done] = cluster.ask(*resolve, "--yes")

        assert unanswered.exit_code == 1
        assert (dry["is_done"], dry["decision"]) == (False, word.removeprefix("--"))
        assert (done["is_done"], done["topic"]) == (True, topic)
        assert seen(lambda: transaction_id not in cluster.run("tx", "ls").stdout)
        there = [row["messages"] for row in cluster.ask("topic", "show", topic)]
        assert there == [1 if word == "--commit" else 0]


def test_transactions_that_cannot_be_decided_or_checked_are_reported(cluster: RunningCluster) -> None:
    with left_open(cluster, "undecided") as transaction_id:
        unsaid = cluster.run("tx", "resolve", transaction_id)
        hurried = cluster.run("tx", "check", transaction_id)
    missing = cluster.run("tx", "resolve", "X", "--commit")
    unknown = cluster.run("tx", "check", "X")

    assert unsaid.exit_code == 64
    assert (hurried.exit_code, "is still checking" in hurried.stderr) == (64, True)
    assert (missing.exit_code, "no undecided transaction X" in missing.stderr) == (3, True)
    assert (unknown.exit_code, "no transaction X whose checks have ended" in unknown.stderr) == (3, True)


def test_a_transaction_whose_checks_have_ended_is_checked_again() -> None:
    hasty = {"transactionTimeOut": 100, "transactionCheckInterval": 200, "transactionCheckMax": 1}
    with pocketmq.Server(settings=hasty) as server:
        cluster = RunningCluster(server)
        with left_open(cluster, "given-up") as transaction_id:
            is_listed = seen(lambda: transaction_id in cluster.run("tx", "ls", "--given-up").stdout)
            unanswered = cluster.run("tx", "check", transaction_id)
            [done] = cluster.ask("tx", "check", transaction_id, "--yes")

    assert is_listed
    assert unanswered.exit_code == 1
    assert (done["transaction_id"], done["is_done"]) == (transaction_id, True)

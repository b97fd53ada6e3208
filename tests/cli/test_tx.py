"""`pocketmq tx` as a user meets it, on a real server."""

from tests.cli.running_cluster import RunningCluster

import pocketmq


def test_transactions_that_wait_are_listed(own_cluster: RunningCluster) -> None:
    assert "No transaction was found" in own_cluster.run("tx", "ls").stderr
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

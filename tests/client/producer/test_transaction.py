"""The end of a transaction with several messages: each is decided in every situation."""

import asyncio
from typing import Any

import pytest
from tests.client.kit import Cluster, cluster, until

from pocketmq.client.hooks import DecisionEvent, Hooks
from pocketmq.client.producer.transactions import Transaction
from pocketmq.codes import RequestCode, TransactionState
from pocketmq.model.message import StoredMessage
from pocketmq.model.properties import format_properties
from pocketmq.protocol.api.messages import CheckTransactionState
from pocketmq.protocol.command import Command
from pocketmq.protocol.record import encode_record
from pocketmq.testing import run

HOST = bytes([10, 0, 0, 2, 0, 0, 42, 159])


def never_asked(message: StoredMessage) -> bool:
    raise AssertionError("how it ended is known here")


async def answer_to(c: Cluster, message_id: str) -> TransactionState:
    """The answer to the check-back of the transaction of a message."""
    properties = format_properties({"UNIQ_KEY": message_id, "PGROUP": "PG"}).encode()
    record = encode_record(b"T", 1, 7, 5000, b"half", properties, 0, 0, 1, HOST, 2, HOST)
    header = CheckTransactionState(7, 5000, "RMQ_SYS_TRANS_HALF_TOPIC", message_id, message_id, "offset id")
    before = len(c.broker.requests(RequestCode.END_TRANSACTION))
    question = Command(RequestCode.CHECK_TRANSACTION_STATE, {**header.encode(), "bname": "broker-a"}, record)
    c.broker.peers[-1].oneway(question)
    await until(lambda: len(c.broker.requests(RequestCode.END_TRANSACTION)) > before)
    ext: dict[str, Any] = c.broker.requests(RequestCode.END_TRANSACTION)[-1].ext or {}
    assert ext["msgId"] == message_id
    return TransactionState(int(ext["commitOrRollback"]))


async def sent(tx: Transaction) -> list[str]:
    return [(await tx.send(body)).message_id for body in (b"a", b"b", b"c")]


def test_all_messages_are_decided_after_a_cancelled_end() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(group="PG", check=never_asked) as producer:
            tx = producer.transaction("T")
            ids = await sent(tx)
            await asyncio.sleep(5)  # the connection is closed, so it may be opened again at once
            c.network.cut(c.broker.address)
            await asyncio.sleep(0.01)
            ending = asyncio.create_task(tx.commit())
            await asyncio.sleep(0.0005)
            ending.cancel()
            await asyncio.wait((ending,))
            assert ending.cancelled(), "it was waiting for a new line"

            await producer.send("T", b"makes the line")
            assert [await answer_to(c, one) for one in ids] == [TransactionState.COMMIT] * 3

    run(main())


@pytest.mark.parametrize("state", [TransactionState.COMMIT, TransactionState.ROLLBACK])
def test_a_broker_without_a_route_gets_the_decision_when_it_checks(state: TransactionState) -> None:
    events: list[DecisionEvent] = []

    class Watching(Hooks):
        def after_decision(self, event: DecisionEvent) -> None:
            events.append(event)

    async def main() -> None:
        async with cluster() as c, c.producer(group="PG", check=never_asked, hooks=[Watching()]) as producer:
            tx = producer.transaction("T")
            ids = await sent(tx)
            producer.member.instance.brokers.keep_only([])
            await tx.end(state)

            assert [(event.message_id, event.state) for event in events] == [(one, state) for one in ids]
            assert [await answer_to(c, one) for one in ids] == [state] * 3

    run(main())

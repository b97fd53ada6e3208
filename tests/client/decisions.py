"""Decisions of transactions as a broker of `kit` receives them, and its check-back."""

from typing import Any

from tests.client.kit import Cluster, until

from pocketmq.client.producer.transactions import Decision
from pocketmq.codes import RequestCode, TransactionState
from pocketmq.model.properties import format_properties
from pocketmq.protocol.api.messages import CheckTransactionState
from pocketmq.protocol.command import Command
from pocketmq.protocol.record import encode_record

END, CHECK = RequestCode.END_TRANSACTION, RequestCode.CHECK_TRANSACTION_STATE
HOST = bytes([10, 0, 0, 2, 0, 0, 42, 159])
COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN


def ends(c: Cluster) -> list[tuple[str, TransactionState, bool]]:
    """How each transaction was decided, and whether the broker had checked it."""
    return [
        (ext["msgId"], TransactionState(int(ext["commitOrRollback"])), ext["fromTransactionCheck"] == "true")
        for ext in ((command.ext or {}) for command in c.broker.requests(END))
    ]


def check_back(
    transaction_id: str, *, body: bytes = b"half", group: str = "PG", sys_flag: int = 0, topic: bytes = b"T"
) -> Command:
    """A broker's question."""
    properties = format_properties({"UNIQ_KEY": transaction_id, "PGROUP": group, "KEYS": "k"})
    record = encode_record(topic, 1, 7, 5000, body, properties.encode(), 0, sys_flag, 1, HOST, 2, HOST)
    header = CheckTransactionState(7, 5000, "RMQ_SYS_TRANS_HALF_TOPIC", transaction_id, transaction_id, "offset id")
    return Command(CHECK, {**header.encode(), "bname": "broker-a"}, record)


async def answers(c: Cluster, count: int) -> list[tuple[str, TransactionState, bool]]:
    await until(lambda: len(ends(c)) >= count)
    return ends(c)


def says(decision: Decision) -> Any:
    return lambda message: decision

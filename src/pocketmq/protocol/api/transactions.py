"""Transactions: a producer's decision, and the broker's question when none came."""

from pocketmq.codes import RequestCode
from pocketmq.protocol.api.row import Api, Server
from pocketmq.protocol.fields import Fields
from pocketmq.protocol.header import Int32, Int64


class EndTransaction(Fields):
    """`commit_or_rollback` is a `TransactionState`; both offsets are those of the half message."""

    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    msg_id: str
    topic: str | None = None
    from_transaction_check: bool | None = None
    transaction_id: str | None = None


class CheckTransactionState(Fields):
    """`topic` is that of the half messages; the real one is in the body."""

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    topic: str | None = None
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class ResumeCheckHalfMessage(Fields):
    topic: str | None = None
    msg_id: str | None = None


ROWS = (
    Api(RequestCode.END_TRANSACTION, EndTransaction, oneway=True),
    Api(RequestCode.CHECK_TRANSACTION_STATE, CheckTransactionState, served_by=Server.CLIENT, oneway=True),
    Api(RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeCheckHalfMessage),
)

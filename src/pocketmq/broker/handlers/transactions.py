"""Transactions: decisions of their producers (37), and repeated check-backs that an administrator requests (323).

Decisions are mostly one-way requests, so their producers get no errors. The broker logs rejections once in a while.
"""

import logging
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Final

from pocketmq.broker.groups.consumer_group import peer_of
from pocketmq.broker.groups.members import Producers
from pocketmq.broker.state import BrokerState
from pocketmq.broker.transactions.checks import FindProducer, ProducerPeer
from pocketmq.broker.transactions.transactions import Transactions
from pocketmq.codes import RequestCode
from pocketmq.errors import FlushDiskTimeout, InvalidParameter, PocketMQError
from pocketmq.net import Handler, Peer, Reply, Request
from pocketmq.protocol.api.messages import EndTransaction, ResumeCheckHalfMessage

log = logging.getLogger("pocketmq.broker")

LOG_INTERVAL_S = 60.0
MAX_UNSENT_BYTES: Final = 1024 * 1024
"""A producer with more unsent bytes than this is not checked for now."""


class TransactionHandlers:
    """Requests about transactions. `refused` counts rejected decisions."""

    def __init__(self, state: BrokerState, transactions: Transactions) -> None:
        self._state = state
        self._transactions = transactions
        self._next_log_at = state.clock.monotonic()
        self.refused = 0

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.END_TRANSACTION: self.end,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume,
        }

    def end(self, request: Request[EndTransaction]) -> Reply | Coroutine[Any, Any, Reply]:
        """Decided on return, or soon if the half message itself is not in the log yet."""
        if self._transactions.is_unreadable_yet(request.header):
            return self._end_later(request)
        self._decide(request)
        return Reply() if request.command.is_oneway else self._when_safe()

    async def _end_later(self, request: Request[EndTransaction]) -> Reply:
        await self._state.appender.synced()
        self._decide(request)
        return await self._when_safe()

    def _decide(self, request: Request[EndTransaction]) -> None:
        try:
            self._transactions.decisions.end(request.header)
        except PocketMQError as error:
            self.refused += 1
            if self._state.clock.monotonic() >= self._next_log_at:
                self._next_log_at = self._state.clock.monotonic() + LOG_INTERVAL_S
                log.warning(
                    "Rejected %d decisions about transactions so far, the last of %s in group %s: %s",
                    self.refused,
                    request.peer.address,
                    request.header.producer_group,
                    error,
                )
            raise

    def resume(self, request: Request[ResumeCheckHalfMessage]) -> Reply | Coroutine[Any, Any, Reply]:
        if not request.header.msg_id:
            raise InvalidParameter("msgId is missing: it names the transaction to check again")
        self._transactions.resume(request.header.msg_id)
        log.info(
            "Transaction %s will be checked again, as requested by %s", request.header.msg_id, request.peer.address
        )
        return self._when_safe()

    async def _when_safe(self) -> Reply:
        if not await self._state.appender.safe():
            raise FlushDiskTimeout("it is stored, but not yet synced to disk")
        return Reply()


def producer_finder(producers: Producers, may_send_to: Callable[[Peer, str], bool] | None = None) -> FindProducer:
    """A function that returns the producers of a group in turn.

    A check-back contains the message. If clients have accounts, only producers that may send to its topic are checked.
    """

    def find(group: str, topic: str) -> ProducerPeer | None:
        def usable(connection: Hashable) -> bool:
            return _is_available(connection) and (may_send_to is None or may_send_to(peer_of(connection), topic))

        connection = producers.next_connection(group, usable)
        return None if connection is None else peer_of(connection)

    return find


def _is_available(connection: Hashable) -> bool:
    peer = peer_of(connection)
    return peer.is_open and peer.connection.writable and peer.connection.unsent_bytes < MAX_UNSENT_BYTES

"""Transactions: what their producers decide (37), and those that an administrator has asked about again (323).

Decisions usually come one-way: nobody hears when one is refused. So it is told here, once in a while.
"""

import logging
from collections.abc import Coroutine
from typing import Any

from pocketmq.broker.messages.appending import Appender
from pocketmq.broker.transactions.transactions import Transactions
from pocketmq.clock import Clock
from pocketmq.codes import RequestCode
from pocketmq.errors import FlushDiskTimeout, InvalidParameter, PocketMQError
from pocketmq.net.dispatcher import Handler, Reply, Request
from pocketmq.protocol.api.sending import EndTransaction, ResumeCheckHalfMessage

log = logging.getLogger("pocketmq.broker")

TELL_EVERY_S = 60.0


class TransactionHandlers:
    """Requests about transactions. `refused` counts decisions that could not be carried out."""

    def __init__(self, transactions: Transactions, appender: Appender, clock: Clock) -> None:
        self._transactions = transactions
        self._appender = appender
        self._clock = clock
        self._tell_from = clock.monotonic()
        self.refused = 0

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.END_TRANSACTION: self.end,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume,
        }

    def end(self, request: Request[EndTransaction]) -> Reply | Coroutine[Any, Any, Reply]:
        """Decided when this returns, or soon, when the half message itself is still on its way to the log."""
        if self._transactions.comes_too_soon(request.header):
            return self._end_later(request)
        self._decide(request)
        return Reply() if request.command.is_oneway else self._when_safe()

    async def _end_later(self, request: Request[EndTransaction]) -> Reply:
        await self._appender.synced()
        self._decide(request)
        return await self._when_safe()

    def _decide(self, request: Request[EndTransaction]) -> None:
        try:
            self._transactions.end(request.header)
        except PocketMQError as error:
            self.refused += 1
            if self._clock.monotonic() >= self._tell_from:
                self._tell_from = self._clock.monotonic() + TELL_EVERY_S
                log.warning(
                    "%d decisions about transactions were refused so far, the last to %s of group %s: %s",
                    self.refused,
                    request.peer.address,
                    request.header.producer_group,
                    error,
                )
            raise

    def resume(self, request: Request[ResumeCheckHalfMessage]) -> Reply | Coroutine[Any, Any, Reply]:
        if not request.header.msg_id:
            raise InvalidParameter("name the message (msgId) whose transaction is to be asked about again")
        self._transactions.resume(request.header.msg_id)
        log.info("%s has transaction %s asked about again", request.peer.address, request.header.msg_id)
        return self._when_safe()

    async def _when_safe(self) -> Reply:
        if not await self._appender.safe():
            raise FlushDiskTimeout("it is stored, but not yet safely on the disk")
        return Reply()

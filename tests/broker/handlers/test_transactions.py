"""Decisions about transactions, and their resumption, as requests."""

import asyncio
import logging
from collections.abc import Coroutine

import pytest
from tests.broker.transactions.kit import COMMIT, GROUP, ROLLBACK, Lab

from pocketmq.broker.handlers.transactions import TransactionHandlers
from pocketmq.broker.messages import StoredPosition
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import FlushDiskTimeout, ImpossibleRequest, InvalidParameter
from pocketmq.model.names import CHECK_MAX_TIME_TOPIC
from pocketmq.net.peer import Peer
from pocketmq.net.server import Reply, Request
from pocketmq.protocol.api.messages import EndTransaction, ResumeCheckHalfMessage
from pocketmq.protocol.command import ONEWAY, Command
from pocketmq.store.settings import FlushMode
from pocketmq.testing import run


class Served(Lab):
    """A lab with its handlers."""

    def __init__(self, *args: object, **changes: object) -> None:
        super().__init__(*args, **changes)  # type: ignore[arg-type]
        self.handlers = TransactionHandlers(self.state, self.transactions)

    def ask_end(self, place: StoredPosition, state: int = COMMIT, *, oneway: bool = False, group: str = GROUP) -> Reply:
        header = EndTransaction(group, place.queue_offset, place.log_offset, int(state), "")
        command = Command(RequestCode.END_TRANSACTION, flag=ONEWAY if oneway else 0)
        return self.wait(self.handlers.end(Request(Peer(), command, header)))

    def ask_resume(self, message_id: str | None) -> Reply:
        header = ResumeCheckHalfMessage("T", message_id)
        command = Command(RequestCode.RESUME_CHECK_HALF_MESSAGE)
        return self.wait(self.handlers.resume(Request(Peer(), command, header)))

    def wait(self, outcome: Reply | Coroutine[object, object, Reply]) -> Reply:
        """The answer; the disk executes its calls in the meantime."""
        if isinstance(outcome, Reply):
            return outcome

        async def main() -> Reply:
            return await outcome

        return run(main())


def commit_of(place: StoredPosition, flag: int = 0) -> Request[EndTransaction]:
    header = EndTransaction(GROUP, place.queue_offset, place.log_offset, int(COMMIT), "")
    return Request(Peer(), Command(RequestCode.END_TRANSACTION, flag=flag), header)


def test_the_handler_serves_two_requests() -> None:
    lab = Served.new()

    assert lab.handlers.table() == {
        RequestCode.END_TRANSACTION: lab.handlers.end,
        RequestCode.RESUME_CHECK_HALF_MESSAGE: lab.handlers.resume,
    }


@pytest.mark.parametrize("oneway", [True, False])
def test_a_decision_is_executed_and_answered(oneway: bool) -> None:
    lab = Served.new()
    yes, no = lab.send(b"yes"), lab.send(b"no")

    replies = [lab.ask_end(yes, COMMIT, oneway=oneway), lab.ask_end(no, ROLLBACK, oneway=oneway)]

    assert replies == [Reply(), Reply()]
    assert lab.delivered() == [b"yes"]
    assert lab.transactions.undecided(10) == []


def test_a_one_way_decision_needs_neither_loop_nor_disk() -> None:
    lab = Served.new(flush=FlushMode.SYNC)
    place = lab.send()

    outcome = lab.handlers.end(commit_of(place, ONEWAY))

    assert outcome == Reply()
    assert lab.delivered() == [b"body"]


def test_refused_decisions_are_logged_at_intervals(caplog: pytest.LogCaptureFixture) -> None:
    lab = Served.new()
    place = lab.send()

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with pytest.raises(ImpossibleRequest):
                lab.ask_end(place, group="Other", oneway=True)
        told_at_once = caplog.text.count("decisions about transactions so far")
        lab.clock.advance_ms(60_000)
        with pytest.raises(ImpossibleRequest):
            lab.ask_end(place, group="Other")

    assert told_at_once == 1
    assert "Rejected 4 decisions about transactions so far" in caplog.text
    assert lab.handlers.refused == 4


def test_a_late_sync_is_reported_to_the_waiting_producer() -> None:
    lab = Served.new(flush=FlushMode.SYNC)
    place = lab.send()
    lab.opened.run_workers()
    waiting = lab.handlers.end(commit_of(place))
    assert not isinstance(waiting, Reply)

    async def main() -> None:
        task = asyncio.create_task(waiting)
        await asyncio.sleep(0)
        lab.clock.advance_ms(10_000)
        lab.store.tick()
        with pytest.raises(FlushDiskTimeout):
            await task

    run(main())

    assert lab.delivered() == [b"body"]


def test_a_decision_waits_for_a_half_message_that_the_pool_has_not_written() -> None:
    lab = Served.new(transient_pool=True, pool_buffers=4, pool_buffer_bytes=64 * 1024)
    place = lab.send()
    waiting = lab.handlers.end(commit_of(place, ONEWAY))
    assert not isinstance(waiting, Reply)

    async def main() -> Reply:
        task = asyncio.create_task(waiting)
        await asyncio.sleep(0)
        for _ in range(3):
            lab.opened.tick(1000)
        return await task

    assert run(main()) == Reply()
    lab.opened.settle(3)
    assert lab.delivered() == [b"body"]


def test_an_administrator_resumes_a_given_up_transaction() -> None:
    lab = Served.new()
    lab.with_transaction(max_checks=1)
    lab.send()
    lab.check()
    lab.check()
    (message,) = lab.messages(CHECK_MAX_TIME_TOPIC, 0)

    assert lab.ask_resume(message.offset_id) == Reply()

    assert len(lab.check()) == 1


def test_resuming_a_missing_transaction_is_refused() -> None:
    lab = Served.new()

    for nothing in (None, ""):
        with pytest.raises(InvalidParameter, match="msgId"):
            lab.ask_resume(nothing)
    with pytest.raises(ImpossibleRequest) as refusal:
        lab.ask_resume("0" * 32)
    assert refusal.value.code == ResponseCode.SYSTEM_ERROR

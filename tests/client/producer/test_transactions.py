"""Transactions: as a block, by a listener, and with lost decisions."""

import asyncio
from typing import Any

import pytest
from tests.client.decisions import COMMIT, END, ROLLBACK, UNKNOWN, answers, check_back, says
from tests.client.kit import cluster, properties_of, refuse, until

from pocketmq.client.hooks import DecisionEvent, Hooks
from pocketmq.client.producer.transactions import Decision, state_of
from pocketmq.codes import RequestCode, SysFlag, TransactionState
from pocketmq.errors import FlushDiskTimeout, InvalidMessage, UsageError, WrongState
from pocketmq.model.message import Message, StoredMessage
from pocketmq.model.message_id import OffsetId
from pocketmq.testing import run

SEND = RequestCode.SEND_MESSAGE_V2


def test_a_transaction_block_without_an_error_commits() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(group="PG", check=says(None)) as producer:
            async with producer.transaction("T") as tx:
                result = await tx.send(b"order", keys="42")
                assert not c.broker.requests(END)
            await until(lambda: c.broker.requests(END))

            (send,), (end,) = c.broker.sends, c.broker.requests(END)
            assert int((send.ext or {})["f"]) == SysFlag.TRANSACTION_PREPARED
            assert properties_of(send)["TRAN_MSG"] == "true"
            assert properties_of(send)["PGROUP"] == "PG"
            assert end.is_oneway
            assert end.ext == {
                "producerGroup": "PG",
                "topic": "T",
                "bname": "broker-a",
                "tranStateTableOffset": str(result.queue_offset),
                "commitLogOffset": str(OffsetId.parse(result.offset_id).offset),
                "commitOrRollback": "8",
                "msgId": result.message_id,
                "transactionId": result.message_id,
                "fromTransactionCheck": "false",
            }
            assert tx.state is COMMIT

    run(main())


def test_a_block_that_raises_rolls_back_and_raises() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(group="PG", check=says(None)) as producer:
            went_on = True
            try:
                async with producer.transaction("T") as tx:
                    result = await tx.send(b"order")
                    raise ZeroDivisionError
            except ZeroDivisionError:
                went_on = False

            assert not went_on
            assert await answers(c, 1) == [(result.message_id, ROLLBACK, False)]

    run(main())


def test_a_block_that_is_cancelled_rolls_back() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(group="PG", check=says(None)) as producer:

            async def work() -> None:
                async with producer.transaction("T") as tx:
                    await tx.send(b"order")
                    await asyncio.sleep(3600)

            task = asyncio.create_task(work())
            await until(lambda: c.broker.sends)
            await asyncio.sleep(0.1)
            task.cancel()

            assert [state for _, state, _ in await answers(c, 1)] == [ROLLBACK]

    run(main())


def test_messages_of_one_block_are_all_decided() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(group="PG", check=says(None)) as producer:
            async with producer.transaction("T") as tx:
                sent = [await tx.send(b"a"), await tx.send(Message("T", b"b", tags="x"), timeout_s=1)]

            assert await answers(c, 2) == [(result.message_id, COMMIT, False) for result in sent]

    run(main())


def test_a_block_can_decide_before_its_end_and_only_once() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(group="PG", check=says(None)) as producer:
            for decide in ("commit", "roll_back", "leave_open"):
                async with producer.transaction("T") as tx:
                    await tx.send(b"x")
                    await getattr(tx, decide)()
                    with pytest.raises(WrongState, match="has ended with"):
                        await tx.commit()
                    with pytest.raises(WrongState, match="start another one"):
                        await tx.send(b"y")

            assert [state for _, state, _ in await answers(c, 3)] == [COMMIT, ROLLBACK, UNKNOWN]

    run(main())


def test_transactions_need_a_check() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(group="PG") as producer:
            with pytest.raises(WrongState, match="transactions need check="):
                producer.transaction("T")
            with pytest.raises(WrongState, match="needs listener="):
                await producer.send_in_transaction(Message("T", b"x"))

    run(main())


@pytest.mark.parametrize("options", [{"delay_level": 1}, {"deliver_at_ms": 1}, {"delay_ms": 1}])
def test_a_message_in_a_transaction_cannot_be_delayed(options: dict[str, int]) -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(group="PG", check=says(None)) as producer:
            with pytest.raises(InvalidMessage, match="cannot be delayed"):
                async with producer.transaction("T") as tx:
                    await tx.send(b"x", **options)  # type: ignore[arg-type]

            assert not c.broker.sends

    run(main())


class Listener:
    """Decides by its argument."""

    def __init__(self, check: Decision = None) -> None:
        self.executed: list[tuple[Message, object]] = []
        self._check = check

    def execute(self, message: Message, argument: object) -> Decision:
        self.executed.append((message, argument))
        if isinstance(argument, Exception):
            raise argument
        assert argument is None or isinstance(argument, TransactionState | bool)
        return argument

    def check(self, message: StoredMessage) -> Decision:
        return self._check


class AsyncListener(Listener):
    async def execute(self, message: Message, argument: object) -> Decision:  # type: ignore[override]
        await asyncio.sleep(0.1)
        return super().execute(message, argument)


@pytest.mark.parametrize("kind", [Listener, AsyncListener])
@pytest.mark.parametrize(
    ("said", "state"), [(True, COMMIT), (False, ROLLBACK), (None, UNKNOWN), (COMMIT, COMMIT), (ROLLBACK, ROLLBACK)]
)
def test_a_listener_executes_and_decides(kind: type[Listener], said: Decision, state: TransactionState) -> None:
    async def main() -> None:
        listener = kind()
        async with cluster() as c, c.producer(group="PG", listener=listener) as producer:
            message = Message("T", b"x")
            result = await producer.send_in_transaction(message, said)

            assert result.state is state
            assert listener.executed == [(message, said)]
            assert await answers(c, 1) == [(result.sent.message_id, state, False)]

    run(main())


@pytest.mark.parametrize("error", [ValueError("no"), "nonsense"])
def test_a_listener_that_fails_leaves_the_decision_to_its_check(error: object) -> None:
    class Failing(Listener):
        def execute(self, message: Message, argument: object) -> Any:
            if isinstance(error, Exception):
                raise error
            return error

    async def main() -> None:
        async with cluster() as c, c.producer(group="PG", listener=Failing()) as producer:
            with pytest.raises(ValueError, match=r"no"):
                await producer.send_in_transaction(Message("T", b"x"))

            assert [state for _, state, _ in await answers(c, 1)] == [UNKNOWN]

    run(main())


def test_a_half_message_that_is_not_stored_safely_is_rolled_back() -> None:
    async def main() -> None:
        listener = Listener()
        async with cluster() as c, c.producer(group="PG", listener=listener) as producer:
            c.broker.answers[SEND] = lambda command: c.broker.store(command, 10)

            with pytest.raises(FlushDiskTimeout, match="not stored safely and was rolled back"):
                await producer.send_in_transaction(Message("T", b"x"), True)

            assert listener.executed == []
            assert [state for _, state, _ in await answers(c, 1)] == [ROLLBACK]

    run(main())


def test_a_decision_that_cannot_be_sent_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(group="PG", check=says(None)) as producer:
            async with producer.transaction("T") as tx:
                result = await tx.send(b"x")
                c.broker.close()
                await asyncio.sleep(0.1)
            assert tx.state is COMMIT

            await c.broker.start()
            await asyncio.sleep(40)
            c.broker.peers[-1].oneway(check_back(result.message_id))
            assert await answers(c, 1) == [(result.message_id, COMMIT, True)], "it remembers"

    run(main())
    assert any("cannot send decision COMMIT" in record.message for record in caplog.records)


def test_hooks_run_for_decisions() -> None:
    events: list[DecisionEvent] = []

    class Watching(Hooks):
        def after_decision(self, event: DecisionEvent) -> None:
            events.append(event)

    async def main() -> None:
        async with cluster() as c, c.producer(group="PG", check=says(False), hooks=[Watching()]) as producer:
            async with producer.transaction("T") as tx:
                result = await tx.send(b"x")
            c.broker.peers[0].oneway(check_back("A" * 32))
            await answers(c, 2)

            assert [(e.message_id, e.state, e.from_check, e.topic) for e in events] == [
                (result.message_id, COMMIT, False, "T"),
                ("A" * 32, ROLLBACK, True, "T"),
            ]
            assert {event.address for event in events} == {"10.0.0.2:10911"}

    run(main())


@pytest.mark.parametrize("nonsense", ["yes", 8, 1.0, object()])
def test_an_invalid_decision_is_refused(nonsense: Any) -> None:
    with pytest.raises(UsageError, match="invalid transaction decision"):
        state_of(nonsense)


def test_a_refused_half_message_raises_its_error() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(group="PG", check=says(True)) as producer:
            c.broker.answers[SEND] = refuse(13)
            with pytest.raises(Exception, match="MESSAGE_ILLEGAL"):
                async with producer.transaction("T") as tx:
                    await tx.send(b"x")
            assert not c.broker.requests(END)

    run(main())

"""Transactions: as a block and by a listener, decisions that get lost, and what brokers are answered when they ask."""

import asyncio
import threading
from collections.abc import Awaitable
from typing import Any

import pytest
from tests.client.kit import Cluster, cluster, ignore, properties_of, refuse, until

from pocketmq.client.hooks import DecisionEvent, Hooks
from pocketmq.client.transactions import CHECKS_AT_ONCE, Decision, state_of
from pocketmq.codes import RequestCode
from pocketmq.errors import FlushDiskTimeout, InvalidMessage, NetworkError, UsageError, WrongState
from pocketmq.model.flags import Compression, SysFlag, TransactionState, with_compression
from pocketmq.model.message import Message, StoredMessage
from pocketmq.model.message_id import OffsetId
from pocketmq.model.properties import format_properties
from pocketmq.protocol.api.transactions import CheckTransactionState
from pocketmq.protocol.command import Command
from pocketmq.protocol.compression import compress
from pocketmq.protocol.fields import write_fields
from pocketmq.protocol.record import encode_record
from pocketmq.testing import run

SEND, END, CHECK = (
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.END_TRANSACTION,
    RequestCode.CHECK_TRANSACTION_STATE,
)
HOST = bytes([10, 0, 0, 2, 0, 0, 42, 159])
COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN


def ends(c: Cluster) -> list[tuple[str, TransactionState, bool]]:
    """Which transaction was decided how, and whether the broker had asked."""
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
    return Command(CHECK, {**write_fields(header), "bname": "broker-a"}, record)


async def answers(c: Cluster, count: int) -> list[tuple[str, TransactionState, bool]]:
    await until(lambda: len(ends(c)) >= count)
    return ends(c)


def says(decision: Decision) -> Any:
    return lambda message: decision


def test_a_block_that_ends_well_commits() -> None:
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


def test_a_block_that_raises_rolls_back_and_the_exception_goes_on() -> None:
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
                    with pytest.raises(WrongState, match="begin another one"):
                        await tx.send(b"y")

            assert [state for _, state, _ in await answers(c, 3)] == [COMMIT, ROLLBACK, UNKNOWN]

    run(main())


def test_without_a_check_there_are_no_transactions() -> None:
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
    """Decides as the argument says."""

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

            with pytest.raises(FlushDiskTimeout, match="not stored safely, and is rolled back"):
                await producer.send_in_transaction(Message("T", b"x"), True)

            assert listener.executed == []
            assert [state for _, state, _ in await answers(c, 1)] == [ROLLBACK]

    run(main())


# check-backs


def test_after_a_restart_the_check_answers() -> None:
    asked: list[StoredMessage] = []

    async def check(message: StoredMessage) -> bool:
        asked.append(message)
        return message.body == b"good"

    async def main() -> None:
        async with cluster() as c, c.producer(group="PG", check=check) as producer:
            await producer.send("T", b"x")
            c.broker.peers[0].oneway(check_back("A" * 32, body=b"good"))
            c.broker.peers[0].oneway(check_back("B" * 32, body=b"bad"))

            assert sorted(await answers(c, 2)) == [("A" * 32, COMMIT, True), ("B" * 32, ROLLBACK, True)]
            assert {message.topic for message in asked} == {"T"}
            end = next(e for e in c.broker.requests(END) if (e.ext or {})["msgId"] == "A" * 32)
            assert end.is_oneway
            assert end.ext == {
                "producerGroup": "PG",
                "topic": "RMQ_SYS_TRANS_HALF_TOPIC",
                "bname": "broker-a",
                "tranStateTableOffset": "7",
                "commitLogOffset": "5000",
                "commitOrRollback": "8",
                "msgId": "A" * 32,
                "transactionId": "A" * 32,
                "fromTransactionCheck": "true",
            }

    run(main())


def test_a_plain_check_runs_beside_the_loop() -> None:
    threads: list[threading.Thread] = []

    def check(message: StoredMessage) -> Decision:
        threads.append(threading.current_thread())
        return True

    async def main() -> None:
        async with cluster() as c, c.producer(group="PG", check=check) as producer:
            await producer.send("T", b"x")
            c.broker.peers[0].oneway(check_back("A" * 32))

            assert await answers(c, 1) == [("A" * 32, COMMIT, True)]
            assert threads != [threading.main_thread()]

    run(main())


def test_a_transaction_that_is_open_here_is_not_known_yet_and_one_decided_here_is_remembered() -> None:
    def check(message: StoredMessage) -> Decision:
        raise AssertionError("never asked")

    async def main() -> None:
        async with cluster() as c, c.producer(group="PG", check=check) as producer:
            async with producer.transaction("T") as tx:
                result = await tx.send(b"x")
                c.broker.peers[0].oneway(check_back(result.message_id))
                assert await answers(c, 1) == [(result.message_id, UNKNOWN, True)]
            await answers(c, 2)
            c.broker.peers[0].oneway(check_back(result.message_id))

            assert (await answers(c, 3))[1:] == [(result.message_id, COMMIT, False), (result.message_id, COMMIT, True)]

    run(main())


def test_a_half_message_whose_answer_was_lost_is_rolled_back_when_the_broker_asks() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(group="PG", check=says(True), retries=0) as producer:
            c.broker.answers[SEND] = ignore
            with pytest.raises(NetworkError):
                async with producer.transaction("T") as tx:
                    await tx.send(b"x", timeout_s=1)
            lost = properties_of(c.broker.sends[0])["UNIQ_KEY"]
            c.broker.peers[0].oneway(check_back(lost))

            assert await answers(c, 1) == [(lost, ROLLBACK, True)]

    run(main())


def test_a_check_that_fails_means_not_known_yet(caplog: pytest.LogCaptureFixture) -> None:
    def check(message: StoredMessage) -> Decision:
        raise ValueError("no database")

    async def main() -> None:
        async with cluster() as c, c.producer(group="PG", check=check) as producer:
            await producer.send("T", b"x")
            c.broker.peers[0].oneway(check_back("A" * 32))

            assert await answers(c, 1) == [("A" * 32, UNKNOWN, True)]

    run(main())
    assert any("check failed for transaction AAAA" in record.message for record in caplog.records)


def test_questions_about_other_groups_are_left_to_others() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(group="PG", check=says(True)) as producer, c.producer(group="PG2"):
            await producer.send("T", b"x")
            for group in ("PG2", "PG3", "PG"):
                c.broker.peers[0].oneway(check_back(group * 8, group=group))

            await answers(c, 1)
            await asyncio.sleep(1)
            assert ends(c) == [("PG" * 8, COMMIT, True)]

    run(main())


def test_a_compressed_message_of_a_namespace_is_checked_as_it_was_sent() -> None:
    asked: list[StoredMessage] = []

    def check(message: StoredMessage) -> Decision:
        asked.append(message)
        return True

    async def main() -> None:
        async with cluster(topics=("NS%T",)) as c, c.producer(group="PG", namespace="NS", check=check) as producer:
            await producer.send("T", b"x")
            flag = with_compression(0, Compression.ZLIB)
            packed = compress(b"z" * 100, Compression.ZLIB)
            c.broker.peers[0].oneway(check_back("A" * 32, body=packed, sys_flag=flag, topic=b"NS%T", group="NS%PG"))

            await answers(c, 1)
            assert [(message.topic, message.body) for message in asked] == [("T", b"z" * 100)]
            assert (c.broker.requests(END)[0].ext or {})["producerGroup"] == "NS%PG"

    run(main())


def test_questions_are_bounded_and_checks_run_beside_one_another(caplog: pytest.LogCaptureFixture) -> None:
    running = most = 0

    async def check(message: StoredMessage) -> Decision:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(1)
        running -= 1
        return True

    async def main() -> None:
        async with cluster() as c, c.producer(group="PG", check=check, max_waiting_checks=40) as producer:
            await producer.send("T", b"x")
            for number in range(45):
                c.broker.peers[0].oneway(check_back(f"{number:032}"))
            await answers(c, 40)
            await asyncio.sleep(5)

            assert len(ends(c)) == 40
            assert most == CHECKS_AT_ONCE

    run(main())
    assert sum("40 questions about transactions wait already" in record.message for record in caplog.records) == 5


def test_checks_end_with_the_producer() -> None:
    cancelled: list[str] = []

    async def check(message: StoredMessage) -> Decision:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append("cancelled")
            raise
        return True

    async def main() -> None:
        async with cluster() as c:
            async with c.producer(group="PG", check=check) as producer:
                await producer.send("T", b"x")
                c.broker.peers[0].oneway(check_back("A" * 32))
                await asyncio.sleep(1)
            assert cancelled == ["cancelled"]

    run(main())


def test_a_decision_that_cannot_be_told_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
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
    assert any("is to COMMIT, and will ask" in record.message for record in caplog.records)


def test_decisions_are_told_to_hooks() -> None:
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
def test_what_decides_nothing_is_refused(nonsense: Any) -> None:
    with pytest.raises(UsageError, match="decides no transaction"):
        state_of(nonsense)


def _awaitable(decision: Decision) -> Awaitable[Decision]:
    async def later() -> Decision:
        return decision

    return later()


def test_a_plain_check_may_give_something_to_await() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(group="PG", check=lambda message: _awaitable(True)) as producer:
            await producer.send("T", b"x")
            c.broker.peers[0].oneway(check_back("A" * 32))

            assert await answers(c, 1) == [("A" * 32, COMMIT, True)]

    run(main())


def test_a_refused_half_message_is_raised_and_remembered() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(group="PG", check=says(True)) as producer:
            c.broker.answers[SEND] = refuse(13)
            with pytest.raises(Exception, match="MESSAGE_ILLEGAL"):
                async with producer.transaction("T") as tx:
                    await tx.send(b"x")
            assert not c.broker.requests(END)

    run(main())

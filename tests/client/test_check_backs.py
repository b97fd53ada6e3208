"""Check-backs: the answers to a broker that checks how a transaction ended."""

import asyncio
import threading
from collections.abc import Awaitable

import pytest
from tests.client.decisions import COMMIT, END, ROLLBACK, UNKNOWN, answers, check_back, ends, says
from tests.client.kit import cluster, ignore, properties_of

from pocketmq.client.producer.transactions import CHECKS_AT_ONCE, Decision
from pocketmq.codes import Compression, RequestCode
from pocketmq.errors import NetworkError
from pocketmq.model.message import StoredMessage
from pocketmq.protocol.compression import compress, with_compression
from pocketmq.testing import run

SEND = RequestCode.SEND_MESSAGE_V2


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


def test_checks_of_open_transactions_are_answered_unknown_and_decided_ones_are_remembered() -> None:
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


def test_a_half_message_with_a_lost_answer_is_rolled_back_at_the_check() -> None:
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


def test_a_failing_check_means_unknown(caplog: pytest.LogCaptureFixture) -> None:
    def check(message: StoredMessage) -> Decision:
        raise ValueError("no database")

    async def main() -> None:
        async with cluster() as c, c.producer(group="PG", check=check) as producer:
            await producer.send("T", b"x")
            c.broker.peers[0].oneway(check_back("A" * 32))

            assert await answers(c, 1) == [("A" * 32, UNKNOWN, True)]

    run(main())
    assert any("check failed for transaction AAAA" in record.message for record in caplog.records)


def test_checks_of_other_groups_are_ignored() -> None:
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


def test_checks_are_limited_and_run_concurrently(caplog: pytest.LogCaptureFixture) -> None:
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
    assert sum("40 transaction checks already wait" in record.message for record in caplog.records) == 5


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


def _awaitable(decision: Decision) -> Awaitable[Decision]:
    async def later() -> Decision:
        return decision

    return later()


def test_a_plain_check_may_return_an_awaitable() -> None:
    async def main() -> None:
        async with cluster() as c, c.producer(group="PG", check=lambda message: _awaitable(True)) as producer:
            await producer.send("T", b"x")
            c.broker.peers[0].oneway(check_back("A" * 32))

            assert await answers(c, 1) == [("A" * 32, COMMIT, True)]

    run(main())

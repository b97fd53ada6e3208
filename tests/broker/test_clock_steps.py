"""A wall clock that is temporarily ahead: nothing is delivered early, given up or deleted because of it."""

import asyncio
import logging
from datetime import datetime
from pathlib import Path

import pytest
from tests.broker.lives import Lives, in_virtual_time, make_topic, stored
from tests.broker.running import Client

from pocketmq.broker.broker import Broker
from pocketmq.codes import RequestCode
from pocketmq.model.names import CHECK_MAX_TIME_TOPIC
from pocketmq.protocol.bodies.clients import HeartbeatData, ProducerData

HOUR_MS = 3_600_000
CONFIRM_S = 300


async def blip(lives: Lives, step_ms: int, seconds: float = 5) -> None:
    """The wall clock is wrong for some seconds, and right again."""
    lives.clock.step_ms(step_ms)
    await asyncio.sleep(seconds)
    lives.clock.step_ms(-step_ms)


async def settle(seconds: int = CONFIRM_S) -> None:
    """Wait until the broker trusts its first reading of the clock."""
    await asyncio.sleep(seconds + 1)


@pytest.mark.parametrize("properties", [{"DELAY": "3"}, {"TIMER_DELAY_SEC": "10"}])
@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])
def test_a_delayed_message_is_not_early_during_a_clock_error(properties: dict[str, str], step_ms: int) -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            client = await lives.client()
            await client.sent(b"late", properties=properties)

            await asyncio.sleep(1)
            await blip(lives, step_ms, 6)
            before = len(stored(broker))
            await asyncio.sleep(5.5)

            assert before == 0
            assert [message.body for message in stored(broker)] == [b"late"]

    in_virtual_time(main)


def test_a_delayed_message_that_is_sent_while_the_clock_is_ahead_is_on_time() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            client = await lives.client()
            lives.clock.step_ms(HOUR_MS)
            await client.sent(b"1", properties={"DELAY": "2"})
            lives.clock.step_ms(-HOUR_MS)

            await asyncio.sleep(4.8)
            before = len(stored(broker))
            await asyncio.sleep(0.5)

            assert (before, len(stored(broker))) == (0, 1)
            assert stored(broker)[0].store_ms <= lives.clock.now_ms()

    in_virtual_time(main)


@pytest.mark.parametrize("properties", [{"DELAY": "3"}, {"TIMER_DELAY_SEC": "10"}, {"TIMER_DELAY_MS": "10000"}])
def test_a_delayed_message_that_is_sent_while_the_clock_is_behind_is_on_time(properties: dict[str, str]) -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            client = await lives.client()
            await client.sent(b"before")
            lives.clock.step_ms(-HOUR_MS)
            await asyncio.sleep(4)
            await client.sent(b"late", properties=properties)
            await asyncio.sleep(1)
            lives.clock.step_ms(HOUR_MS)

            await asyncio.sleep(8.8)
            before = len(stored(broker))
            await asyncio.sleep(1.5)

            assert before == 1
            assert [message.body for message in stored(broker)] == [b"before", b"late"]

    in_virtual_time(main)


def test_a_timed_message_waits_for_a_clock_that_was_set_back() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            client = await lives.client()
            lives.clock.step_ms(-HOUR_MS)
            await client.sent(b"at", properties={"TIMER_DELIVER_MS": str(lives.clock.now_ms() + 10_000)})

            await asyncio.sleep(9.5)
            before = len(stored(broker))
            await asyncio.sleep(2)

            assert (before, len(stored(broker))) == (0, 1)

    in_virtual_time(main)


async def open_transaction(client: Client) -> None:
    """A producer that is connected, and has sent a message that it did not decide about."""
    body = HeartbeatData("client", (ProducerData("PG"),), ()).encode()
    await client.ask(RequestCode.HEART_BEAT, body=body)
    await client.sent(b"half", properties={"TRAN_MSG": "true", "PGROUP": "PG"}, sys_flag=4)


def questions(client: Client) -> int:
    return sum(told.code == RequestCode.CHECK_TRANSACTION_STATE for told in client.told)


def test_a_transaction_is_not_given_up_during_a_forward_clock_error() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            await settle()
            client = await lives.client()
            await open_transaction(client)

            await blip(lives, 80 * HOUR_MS, 40)
            await asyncio.sleep(60)

            assert CHECK_MAX_TIME_TOPIC not in broker.parts.state.topics
            assert broker.parts.transactions.ledger.open_count == 1
            assert 1 <= questions(client) <= 4

    in_virtual_time(main)


def test_a_transaction_is_not_given_up_by_a_wrong_clock_at_the_start() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            await open_transaction(await lives.client())
        lives.clock.step_ms(80 * HOUR_MS)
        async with lives.broker() as broker:
            await asyncio.sleep(100)
            lives.clock.step_ms(-80 * HOUR_MS)
            await settle()

            assert broker.parts.transactions.ledger.open_count == 1

    in_virtual_time(main)


async def fill(lives: Lives, broker: Broker) -> Client:
    make_topic(broker)
    client = await lives.client()
    for number in range(40):
        await client.sent(bytes(8_000), queue_id=number % 2)
    return client


def at_the_hour(lives: Lives) -> None:
    hour = datetime.fromtimestamp(lives.clock.now_ms() / 1000).hour
    lives.settings = Lives(store={"delete_hours": (hour,)}).settings


def test_nothing_is_deleted_by_a_fast_clock_at_the_deletion_hour() -> None:
    async def main(lives: Lives) -> None:
        at_the_hour(lives)
        async with lives.broker() as broker:
            await fill(lives, broker)
            await settle()

            await blip(lives, 96 * HOUR_MS, 60)

            assert broker.parts.state.store.facts.log_start == 0

    in_virtual_time(main)


def test_a_file_written_with_a_slow_clock_is_not_old() -> None:
    async def main(lives: Lives) -> None:
        at_the_hour(lives)
        async with lives.broker() as broker:
            make_topic(broker)
            await (await lives.client()).sent()
            await settle()
            lives.clock.step_ms(-96 * HOUR_MS)
            await fill(lives, broker)
            lives.clock.step_ms(96 * HOUR_MS)

            await asyncio.sleep(60)

            assert broker.parts.state.store.facts.log_start == 0

    in_virtual_time(main)


def test_a_broker_that_starts_with_a_wrong_clock_deletes_nothing() -> None:
    async def main(lives: Lives) -> None:
        at_the_hour(lives)
        async with lives.broker() as broker:
            await fill(lives, broker)
        lives.clock.step_ms(96 * HOUR_MS)
        async with lives.broker() as broker:
            await asyncio.sleep(60)
            lives.clock.step_ms(-96 * HOUR_MS)
            await settle()

            assert broker.parts.state.store.facts.log_start == 0

    in_virtual_time(main)


def test_a_permanent_forward_step_takes_effect_later(caplog: pytest.LogCaptureFixture) -> None:
    async def main(lives: Lives) -> None:
        at_the_hour(lives)
        async with lives.broker() as broker:
            await fill(lives, broker)
            lives.clock.step_ms(96 * HOUR_MS)
            await settle()
            await asyncio.sleep(20)

            assert broker.parts.state.store.facts.log_start > 0

    in_virtual_time(main)

    assert "stepped ahead by 345600.0 s" in caplog.text
    assert "adopting it" in caplog.text


def test_after_a_suspend_of_the_machine_due_messages_are_delivered_at_once() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            client = await lives.client()
            await client.sent(b"1", properties={"TIMER_DELAY_SEC": "3600"})
            await asyncio.sleep(1)

            lives.clock.sleep_ms(2 * HOUR_MS)
            await asyncio.sleep(1)

            assert len(stored(broker)) == 1

    in_virtual_time(main)


def test_retention_names_the_groups_with_unconsumed_messages(caplog: pytest.LogCaptureFixture) -> None:
    async def main(lives: Lives) -> None:
        at_the_hour(lives)
        async with lives.broker() as broker:
            client = await fill(lives, broker)
            await client.beat("BEHIND")
            await client.beat("AHEAD")
            await client.commit(2, group="BEHIND")
            await client.commit(20, group="AHEAD")
            await client.commit(20, group="AHEAD", queue_id=1)
            await settle()
            caplog.clear()
            lives.clock.sleep_ms(96 * HOUR_MS)
            await asyncio.sleep(30)
            deleted = broker.parts.state.store.min_offset("T", 0)

            [line] = [record for record in caplog.records if "unread" in record.getMessage()]
            assert line.levelno == logging.WARNING
            text = line.getMessage()
            assert "log offsets 0 to" in text
            assert "older than 72 h" in text
            assert f"queue 0: 2 to {deleted - 1}, queue 1: 0 to" in text
            assert "group BEHIND had not consumed" in text
            assert "AHEAD" not in text
            assert broker.parts.state.unread.messages == deleted - 2 + broker.parts.state.store.min_offset("T", 1)

    in_virtual_time(main)


def test_retention_names_them_also_on_a_full_disk(caplog: pytest.LogCaptureFixture) -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            client = await fill(lives, broker)
            await client.beat("BEHIND")
            await client.commit(2, group="BEHIND")
            usage = lives.disk.usage(Path("/"))
            lives.disk.resize(int((usage.total - usage.free) / 0.87))
            await asyncio.sleep(30)
            deleted = broker.parts.state.store.min_offset("T", 0)

            assert deleted > 2, "whatever their age"
            lines = [record for record in caplog.records if "unread" in record.getMessage()]
            assert {line.levelno for line in lines} == {logging.WARNING}
            assert "% full)" in lines[0].getMessage()
            assert "group BEHIND had not consumed" in lines[0].getMessage()

    in_virtual_time(main)

"""Settings that change while a broker runs: each takes effect at once, and the others have a reason."""

import asyncio
from datetime import datetime

import pytest
from tests.broker.lives import Lives, in_virtual_time, make_topic
from tests.broker.running import Client

from pocketmq.broker.setting_keys import KEYS
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.model.setting_keys import Key
from pocketmq.protocol.bodies.properties_text import read_properties
from pocketmq.protocol.command import Command

HOUR_MS = 3_600_000


async def update(client: Client, text: str) -> Command:
    return await client.ask(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())


async def changed(client: Client, text: str) -> None:
    answer = await update(client, text)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def test_every_key_can_change_or_has_a_reason() -> None:
    assert [name for name, key in KEYS.items() if not key.at_run_time and not key.why_not] == []


@pytest.mark.parametrize(("name", "key"), [(name, key) for name, key in KEYS.items() if key.at_run_time])
def test_every_changeable_key_accepts_its_current_value(name: str, key: Key) -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            client = await lives.client()
            told = read_properties((await client.ask(RequestCode.GET_BROKER_CONFIG)).body)
            other = {"true": "false", "false": "true"}.get(told[name], told[name])

            await changed(client, f"{name}={other}\n")

            again = read_properties((await client.ask(RequestCode.GET_BROKER_CONFIG)).body)
            assert again[name] == other
            await client.sent()

    in_virtual_time(main)


def test_an_unchangeable_key_is_refused_with_the_reason() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker():
            client = await lives.client()

            for text, why in (
                ("brokerName=other", "routes and message ids already contain it"),
                ("listenPort=1", "listeners are already open"),
                ("flushDiskType=SYNC_FLUSH", "the store is already open"),
                ("messageDelayLevel=1s", "waiting messages depend on it"),
                ("namesrvAddr=1.2.3.4:9876", "requests cannot change access and name servers"),
                ("brokerRole=SLAVE", "already open as that of a master or a slave"),
            ):
                answer = await update(client, text)
                assert answer.code == ResponseCode.NO_PERMISSION
                assert why in (answer.remark or "")

    in_virtual_time(main)


def test_sends_create_topics_by_the_current_settings() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            client, topics = await lives.client(), broker.parts.state.topics
            await changed(client, "defaultTopicQueueNums=2\n")
            too_many = await update(client, "defaultTopicQueueNums=65537")
            assert too_many.remark == "defaultTopicQueueNums=65537 is not a number up to 65536"
            await client.sent(topic="Two", queues=16)
            await changed(client, "autoCreateTopicEnable=false\n")
            refused = await client.send(topic="No")
            await changed(client, "autoCreateTopicEnable=true\ndefaultTopicQueueNums=16\n")
            await client.sent(topic="Sixteen", queues=16)

            assert topics.require("Two").write_queue_nums == 2
            assert refused.code == ResponseCode.TOPIC_NOT_EXIST
            assert topics.require("Sixteen").write_queue_nums == 16
            await changed(client, f"maxTopics={len(topics)}\n")
            assert (await client.send(topic="More")).code == ResponseCode.TOPIC_NOT_EXIST

    in_virtual_time(main)


def test_retention_uses_the_current_settings() -> None:
    async def main(lives: Lives) -> None:
        hour = datetime.fromtimestamp(lives.clock.now_ms() / 1000).hour
        lives.settings = Lives(store={"delete_hours": ((hour + 12) % 24,)}).settings
        async with lives.broker() as broker:
            make_topic(broker)
            client, facts = await lives.client(), broker.parts.state.store.facts
            for _ in range(40):
                await client.sent(bytes(8_000))
            await asyncio.sleep(300)
            lives.clock.sleep_ms(24 * HOUR_MS)
            await asyncio.sleep(30)
            before = facts.log_start

            await changed(await lives.client(), f"fileReservedTime=12\ndeleteWhen={hour:02}\n")
            await asyncio.sleep(30)

            assert before == 0
            assert facts.log_start > 0

    in_virtual_time(main)


def test_the_message_size_and_intervals_can_change() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            client = await lives.client()
            await client.sent(bytes(3_000))
            await changed(client, "maxMessageSize=2000\nwaitTimeMillsInSendQueue=50\nchannelExpiredTimeout=5000\n")
            refused = await client.send(bytes(3_000))

            assert refused.code == ResponseCode.MESSAGE_ILLEGAL
            assert broker.parts.state.members.expiry == 5
            assert (await update(client, "maxMessageSize=0\n")).code == ResponseCode.INVALID_PARAMETER
            await client.sent(bytes(1_000))

    in_virtual_time(main)


def test_a_disk_ratio_above_the_next_one_counts_as_that_one() -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            await changed(await lives.client(), "diskMaxUsedSpaceRatio=95\n")

            assert broker.parts.state.store.settings.disk_clean_ratio == 0.85

    in_virtual_time(main)

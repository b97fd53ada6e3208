"""Dead letters: count, read, send again, delete."""

from typing import Any

import pytest
from tests.client.admin.admins import admin_of
from tests.client.real_cluster import Basket, RealCluster, real_cluster

from pocketmq.client.admin.dead_letters import Letter, message_to_resend
from pocketmq.client.consumer.consume_result import DeadLetter
from pocketmq.errors import NetworkError, UsageError
from pocketmq.model import properties as names
from pocketmq.model.message import Message
from pocketmq.testing import run


async def bury(c: RealCluster, *bodies: bytes, reason: str = "no such customer", **options: Any) -> None:
    """Turn messages into dead letters of a group."""

    def give_up(_: object) -> None:
        raise DeadLetter(reason)

    basket = Basket(give_up)
    consumer = c.push_consumer(start_at="first")
    consumer.on("T")(basket)
    async with consumer:
        for body in bodies:
            await c.send("T", body, **options)
        await basket.wait(len(bodies))


def test_a_dead_letter_has_its_origin_and_its_reason() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            assert await admin.dead_letters.count("G") == 0
            assert await admin.dead_letters.counts() == {}
            await bury(c, b"1", keys="k", tags="A")

            [letter] = await admin.dead_letters.read("G")

            assert (letter.topic, letter.reason, letter.message.body) == ("T", "no such customer", b"1")
            assert letter.message.keys == ["k"]
            assert await admin.dead_letters.counts() == {"G": 1}

    run(main())


def test_the_oldest_or_the_newest_are_read() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, admin_of(c) as admin:
            await bury(c, *(b"%d" % number for number in range(5)))

            oldest = await admin.dead_letters.read("G", limit=2)
            newest = await admin.dead_letters.read("G", limit=2, newest=True)

            bodies = [letter.message.body for letter in await admin.dead_letters.read("G")]
            assert [letter.message.body for letter in oldest] == bodies[:2]
            assert [letter.message.body for letter in newest] == bodies[-2:]

    run(main())


def test_a_letter_is_sent_again_with_other_properties() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, admin_of(c) as admin:
            await bury(c, b"1", keys="k", tags="A")
            [letter] = await admin.dead_letters.read("G")

            resent = await admin.dead_letters.resend([letter], properties={"repaired": "yes", "TAGS": None})

            [(_, result)] = resent.sent
            message = c.stored("T")[result.queue_offset]
            assert message.body == b"1"
            assert (message.keys, message.tags) == (["k"], None)
            assert message.properties["repaired"] == "yes"
            assert message.properties[names.ORIGIN_MESSAGE_ID] == letter.original_id
            assert message.message_id != letter.message.message_id
            assert not {names.RETRY_TOPIC, names.DELAY, "DEAD_LETTER_REASON"} & message.properties.keys()
            assert (resent.left, resent.failed) == ((), ())

    run(main())


def test_letters_can_be_edited_skipped_or_sent_to_another_topic() -> None:
    async def main() -> None:
        async with real_cluster(topics=("T", "U"), queues=1) as c, admin_of(c) as admin:
            await bury(c, b"good", b"bad")

            def repair(letter: Letter, message: Message) -> Message | None:
                return None if letter.message.body == b"bad" else Message(message.topic, b"better")

            resent = await admin.dead_letters.resend(await admin.dead_letters.read("G"), topic="U", edit=repair)

            assert [letter.message.body for letter in resent.left] == [b"bad"]
            assert [message.body for message in c.stored("U")] == [b"better"]

    run(main())


def test_a_letter_that_cannot_be_sent_does_not_stop_the_others() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, admin_of(c) as admin:
            await bury(c, b"1", b"2")
            first, second = await admin.dead_letters.read("G")

            def break_first(letter: Letter, message: Message) -> Message:
                return Message(message.topic, b"") if letter is first else message

            resent = await admin.dead_letters.resend([first, second], edit=break_first)

            assert [letter for letter, _ in resent.sent] == [second]
            [(letter, why)] = resent.failed
            assert letter is first
            assert "the body is empty" in why

    run(main())


def test_a_letter_without_a_topic_needs_one() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            await bury(c, b"1")
            [letter] = await admin.dead_letters.read("G")
            lost = Letter(group="G", queue=letter.queue, message=letter.message, topic="", original_id="", reason=None)

            with pytest.raises(UsageError, match="give topic="):
                message_to_resend(lost, None, {})
            assert message_to_resend(lost, "T", {}).topic == "T"

    run(main())


def test_letters_are_dropped_and_the_next_one_is_the_first_again() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c, admin_of(c) as admin:
            assert await admin.dead_letters.drop("G") == 0
            await bury(c, b"1", b"2")

            assert await admin.dead_letters.drop("G") == 2

            assert await admin.dead_letters.counts() == {}
            await bury(c, b"3")
            assert [letter.message.body for letter in await admin.dead_letters.read("G")] == [b"3"]

    run(main())


def test_letters_are_read_page_by_page() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            assert await admin.dead_letters.ranges("G") == []
            await bury(c, b"1", b"2", b"3")

            [(queue, begin, end)] = await admin.dead_letters.ranges("G")
            page = await admin.dead_letters.in_queue("G", queue, begin + 1, end)

            assert end - begin == 3
            assert [letter.message.queue_offset for letter in page] == [begin + 1, begin + 2]
            assert page[0].reason == "no such customer"

    run(main())


def test_without_brokers_dead_letters_are_unknown() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            await bury(c, b"1")
            await c.broker.stop()

            for question in (admin.dead_letters.counts(), admin.dead_letters.count("G"), admin.dead_letters.drop("G")):
                with pytest.raises(NetworkError, match="no broker is registered"):
                    await question

    run(main())

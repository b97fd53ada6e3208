"""Problems of a group: each is reported by its step, and by no other."""

import asyncio

from tests.client.admin.admins import admin_of
from tests.client.real_cluster import Basket, real_cluster, until
from tests.doctor.examining import broken, examine, first, reading

from pocketmq.doctor import Report, Verdict
from pocketmq.model.queue import MessageQueue
from pocketmq.testing import run


def test_an_unknown_group() -> None:
    async def main() -> Report:
        async with real_cluster() as c:
            return await examine(c, topic="T", group="G")

    report = run(main())

    assert broken(report) == ["group"]
    assert first(report) == "group G does not exist on any broker"


def test_a_group_without_members() -> None:
    async def main() -> Report:
        async with real_cluster() as c:
            async with reading(c, Basket()):
                pass
            return await examine(c, group="G")

    report = run(main())

    assert broken(report) == ["group"]
    assert first(report) == "group G has no members"


def test_a_group_that_may_not_consume() -> None:
    async def main() -> Report:
        async with real_cluster() as c, reading(c, Basket()):
            async with admin_of(c) as admin:
                await admin.groups.alter("G", may_consume=False)
            return await examine(c, topic="T", group="G")

    report = run(main())

    assert broken(report) == ["group"]
    assert first(report) == "broker broker-a does not allow group G to consume (consumeEnable=false)"


def test_members_with_different_subscriptions() -> None:
    async def main() -> Report:
        async with (
            real_cluster() as c,
            reading(c, Basket(), tags="a"),
            reading(c, Basket(), tags="b", host="10.0.2.2"),
        ):
            return await examine(c, topic="T", group="G")

    report = run(main())

    assert broken(report) == ["subscription"]
    assert "10.0.2.1@" in first(report)
    assert "T (a); 10.0.2.2@" in first(report)
    assert first(report).endswith("T (b)")
    assert report.step("owner").finding.text == "subscription is broken"


def test_a_topic_that_the_group_does_not_subscribe_to() -> None:
    async def main() -> Report:
        async with real_cluster(topics=["T", "other"]) as c, reading(c, Basket()):
            return await examine(c, topic="other", group="G")

    report = run(main())

    assert broken(report) == ["subscription"]
    assert first(report) == "group G does not subscribe to other; it subscribes to: T (*)"


def test_a_filter_that_a_broker_does_not_allow() -> None:
    async def main() -> Report:
        async with real_cluster(property_filter=True) as c:
            consumer = c.push_consumer()
            consumer.on("T", sql="a = 1")(Basket())
            await consumer.start()
            await until(lambda: c.members("G"))
            async with admin_of(c) as admin:
                await admin.cluster.change_settings("broker-a", {"enablePropertyFilter": False})
            try:
                return await examine(c, topic="T", group="G")
            finally:
                await consumer.stop()

    report = run(main())

    assert broken(report) == ["subscription"]
    assert (
        first(report) == "group G filters by SQL92, which broker broker-a does not allow (enablePropertyFilter=false)"
    )


def test_a_member_that_does_not_answer() -> None:
    async def main() -> Report:
        async with real_cluster() as c, reading(c, Basket()):
            c.network.half_open("10.0.2.1")
            return await examine(c, topic="T", group="G")

    report = run(main())

    assert broken(report) == ["owner"]
    assert "10.0.2.1@" in first(report)
    assert "is connected but does not answer" in first(report)
    assert report.step("subscription").verdict is Verdict.UNKNOWN


def test_a_queue_without_an_owner() -> None:
    async def main() -> Report:
        async with real_cluster() as c, reading(c, Basket()):
            c.add_topic("T", queues=5)  # the member sees it with its next request for the route
            return await examine(c, topic="T", group="G")

    report = run(main())

    assert broken(report) == ["owner"]
    assert first(report) == f"{MessageQueue('T', 'broker-a', 4)} has no owner"


def test_a_member_without_a_queue_is_a_note() -> None:
    async def main() -> Report:
        async with real_cluster(queues=1) as c, reading(c, Basket()):
            other = c.push_consumer(host="10.0.2.2")
            other.on("T")(Basket())
            await other.start()
            await until(lambda: len(c.members("G")) == 2)
            await asyncio.sleep(30)
            try:
                return await examine(c, topic="T", group="G")
            finally:
                await other.stop()

    report = run(main())

    assert report.is_healthy
    assert any("owns no queue" in hint for hint in report.hints)


def test_a_queue_that_its_owner_does_not_pull() -> None:
    async def main() -> Report:
        async with real_cluster() as c, reading(c, Basket()):
            await asyncio.sleep(10)  # brokers hold a pull for longer while nothing comes
            return await examine(c, topic="T", group="G", max_pull_age_ms=2_000)

    report = run(main())

    assert broken(report) == ["pull"]
    assert "has not pulled from" in first(report)


def test_a_handler_that_does_not_end() -> None:
    async def main() -> Report:
        release = asyncio.Event()

        async def wait(_: object) -> None:
            await release.wait()

        async with real_cluster(queues=1) as c, reading(c, wait):
            await c.send("T", b"1", b"2")
            await asyncio.sleep(120)
            try:
                return await examine(c, topic="T", group="G")
            finally:
                release.set()

    report = run(main())

    assert broken(report) == ["handler"]
    assert "offset 0 for" in first(report)
    assert "2 messages cached" in first(report)


def test_a_message_after_a_long_silence_is_not_a_stuck_handler() -> None:
    async def main() -> Report:
        release = asyncio.Event()

        async def wait(_: object) -> None:
            await release.wait()

        async with real_cluster(queues=1) as c, reading(c, wait):
            await asyncio.sleep(200)
            await c.send("T", b"1")
            await asyncio.sleep(5)
            try:
                return await examine(c, topic="T", group="G")
            finally:
                release.set()

    report = run(main())

    assert report.is_healthy
    assert "1 message cached or in a handler" in report.step("handler").finding.text


def test_a_group_that_pops_is_healthy_and_its_leases_are_shown() -> None:
    async def main() -> Report:
        async with real_cluster() as c:
            await c.send("T", b"1", b"2", b"3")
            finish = asyncio.Event()

            async def listen(_: object) -> None:
                await finish.wait()

            options = {"mode": "pop", "start_at": "first"}
            async with reading(c, listen, **options) as one, reading(c, listen, host="10.0.2.2", **options) as two:
                await until(lambda: one.leases.in_flight + two.leases.in_flight == 3)
                await asyncio.sleep(5)
                report = await examine(c, topic="T", group="G")
                finish.set()
                return report

    report = run(main())

    assert broken(report) == []
    assert report.step("owner").finding.text == "4 queues, popped by 2 members"
    assert "leased, the oldest for 5 s" in " ".join(report.step("handler").finding.hints)
    assert "3 messages leased, 0 waiting for another attempt" in report.step("offset").finding.text


def test_a_message_that_is_leased_for_too_long() -> None:
    async def main() -> Report:
        async with real_cluster() as c:
            await c.send("T", b"1")
            finish = asyncio.Event()

            async def listen(_: object) -> None:
                await finish.wait()

            async with reading(c, listen, mode="pop", start_at="first", pop_invisible_ms=5_000) as member:
                await until(lambda: member.leases.in_flight == 1)
                await asyncio.sleep(400)
                report = await examine(c, topic="T", group="G")
                finish.set()
                return report

    report = run(main())

    assert broken(report) == ["handler"]
    assert "has a leased message for 6 min" in first(report)


def test_a_group_that_pulls_and_pops() -> None:
    async def main() -> Report:
        async with (
            real_cluster() as c,
            reading(c, Basket()),
            reading(c, Basket(), host="10.0.2.2", mode="pop"),
        ):
            await asyncio.sleep(30)
            return await examine(c, topic="T", group="G")

    report = run(main())

    assert broken(report) == ["owner"]
    assert "so messages are delivered twice" in first(report)

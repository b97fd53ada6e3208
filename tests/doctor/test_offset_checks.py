"""Checks of committed offsets and retention."""

import asyncio
import random

from tests.client.admin.admins import admin_of
from tests.client.real_cluster import Basket, RealCluster, real_cluster, until
from tests.doctor.examining import broken, examine, first, reading

from pocketmq.client.admin.lag import GroupLag, QueueLag
from pocketmq.client.admin.targets import BrokerAddress
from pocketmq.client.cluster.instance import Dependencies
from pocketmq.doctor import DoctorSettings, Report, Verdict
from pocketmq.doctor.context import DoctorContext
from pocketmq.doctor.group_checks import check_retention
from pocketmq.model.queue import MessageQueue
from pocketmq.net.address import Address
from pocketmq.testing import run

HOUR_MS = 3_600_000


async def commit(cluster: RealCluster, offset: int, group: str = "G") -> None:
    """As a member would commit."""
    async with admin_of(cluster) as admin:
        if group not in await admin.groups.names():
            await admin.groups.create(group)
    cluster.broker.parts.state.offsets.commit(
        group, "T", 0, offset
    )  # our broker ignores it in a request; Apache's does not


def test_an_offset_beyond_the_end_of_its_queue() -> None:
    async def main() -> Report:
        async with real_cluster(queues=1) as c, reading(c, Basket()):
            await c.send("T", b"1")
            await asyncio.sleep(20)
            await commit(c, 7)
            return await examine(c, topic="T", group="G")

    report = run(main())

    assert broken(report) == ["offset"]
    assert "committed offset of group G in" in first(report)
    assert "is 7, beyond the end 1" in first(report)
    assert "group reset G T --to earliest" in report.sentence


def test_an_offset_beyond_the_end_in_a_group_without_members_is_a_note_of_its_step() -> None:
    async def main() -> Report:
        async with real_cluster(queues=1) as c:
            await c.send("T", b"1")
            await commit(c, 7)
            return await examine(c, topic="T", group="G")

    report = run(main())

    assert broken(report) == ["group"]
    assert report.step("offset").finding.text == "group is broken"
    assert "is 7, beyond the end 1" in report.step("offset").finding.hints[0]


def test_a_queue_in_which_the_group_has_no_offset_is_unknown_and_not_zero() -> None:
    async def main() -> Report:
        async with real_cluster(queues=2) as c:
            await c.send("T", b"1", queue=0)
            await commit(c, 0)
            return await examine(c, topic="T", group="G")

    report = run(main())

    offset = report.step("offset")
    assert broken(report) == ["group"]
    assert offset.verdict is Verdict.UNKNOWN
    assert "no committed offset in" in offset.finding.hints[0]


def test_a_group_that_broadcasts_keeps_its_own_offsets() -> None:
    async def main() -> Report:
        async with real_cluster(queues=1) as c, reading(c, Basket(), broadcast=True):
            return await examine(c, topic="T", group="G")

    report = run(main())

    assert report.is_healthy
    assert "store their own offsets" in report.step("offset").finding.text
    assert "each owned by all members" in report.step("owner").finding.text


def test_a_group_that_returns_late_is_about_to_lose_messages() -> None:
    async def main() -> Report:
        release = asyncio.Event()

        async def wait(_: object) -> None:
            await release.wait()

        async with real_cluster(queues=1) as c:
            await c.send("T", b"1")
            await commit(c, 0)
            c.clock.sleep_ms(60 * HOUR_MS)
            async with reading(c, wait):
                report = await examine(c, topic="T", group="G")
                release.set()
                return report

    report = run(main())

    assert broken(report) == ["retention"]
    assert "is 2 d 12 h old; the broker deletes it after 3 d" in first(report)


def test_messages_that_grow_old_in_a_group_without_members_are_a_note() -> None:
    async def main() -> Report:
        async with real_cluster(queues=1) as c:
            await c.send("T", b"1")
            await commit(c, 0)
            c.clock.sleep_ms(60 * HOUR_MS)
            return await examine(c, topic="T", group="G")

    report = run(main())

    assert broken(report) == ["group"]
    assert report.step("retention").finding.text == "group is broken"
    assert "is 2 d 12 h old; the broker deletes it after 3 d" in report.step("retention").finding.hints[0]


def test_messages_that_were_deleted_while_the_group_had_no_members() -> None:
    async def main() -> Report:
        async with real_cluster(queues=1) as c:
            await c.send("T", *[random.Random(1).randbytes(1 << 20)] * 5)  # more than a file of the log holds
            await commit(c, 0)
            c.clock.sleep_ms(80 * HOUR_MS)
            await until(c.broker.parts.state.store.drop_expired)  # once it is safe on the disk
            await until(lambda: c.broker.parts.state.store.min_offset("T", 0) > 0)
            return await examine(c, topic="T", group="G")  # a member would continue after them at once

    report = run(main())

    assert broken(report) == ["group"]
    assert report.step("retention").finding.hints == ("3 messages of T@broker-a:0 were deleted before G read them",)


def test_deleted_unread_messages_are_counted() -> None:
    place = BrokerAddress("broker-a", "DefaultCluster", 0, Address("10.0.1.1", 10911))
    queue = QueueLag(
        queue=MessageQueue("T", "broker-a", 0), min_offset=9, max_offset=12, committed=2, messages=3, time_ms=5, lost=7
    )
    context = DoctorContext(DoctorSettings(name_servers="10.0.0.1:9876"), Dependencies(), "T", "G")
    context.brokers = [place]
    context.broker_settings = {place: {"fileReservedTime": "72"}}
    context.lag = GroupLag(group="G", at_ms=0, queues=(queue,))

    finding = run(check_retention(context))

    assert finding.verdict is Verdict.BROKEN
    assert finding.text == f"7 messages of {queue.queue} were deleted before G read them"


def test_the_retention_is_unknown_if_no_broker_reports_it() -> None:
    context = DoctorContext(DoctorSettings(name_servers="10.0.0.1:9876"), Dependencies(), None, None)

    assert run(check_retention(context)).verdict is Verdict.UNKNOWN


def test_the_lag_and_the_retention_time_are_reported() -> None:
    async def main() -> Report:
        async with real_cluster(queues=1) as c:
            await c.send("T", b"1", b"2")
            await commit(c, 1)
            await asyncio.sleep(60)
            return await examine(c, topic="T", group="G")

    report = run(main())

    assert report.step("offset").finding.text == "lag: 1 message, 1 min"
    assert report.step("retention").finding.text == "broker-a keeps messages for 3 d"
    assert broken(report) == ["group"]
    assert first(report) == "group G has no members"

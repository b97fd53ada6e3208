"""Where groups are, and whether messages are kept for as long as they need."""

import asyncio
import random

from tests.client.administration.administrating import admin_of
from tests.client.real_cluster import Basket, RealCluster, real_cluster, until
from tests.doctor.examining import broken, examine, first, reading

from pocketmq.client.admin.lag import GroupLag, QueueLag
from pocketmq.client.admin.reach import BrokerPlace
from pocketmq.client.cluster.instance import Surroundings
from pocketmq.doctor import DoctorSettings, Report, Verdict
from pocketmq.doctor.members import look_at_retention
from pocketmq.doctor.visit import Visit
from pocketmq.model.queue import MessageQueue
from pocketmq.net.address import Address
from pocketmq.testing import run

HOUR_MS = 3_600_000


async def commit(cluster: RealCluster, offset: int, group: str = "G") -> None:
    """As a member would."""
    async with admin_of(cluster) as admin:
        if group not in await admin.groups.names():
            await admin.groups.create(group)
    cluster.broker.parts.offsets.commit(group, "T", 0, offset)  # our broker ignores it in a request; Apache's does not


def test_an_offset_beyond_the_end_of_its_queue() -> None:
    async def main() -> Report:
        async with real_cluster(queues=1) as c, reading(c, Basket()):
            await c.send("T", b"1")
            await asyncio.sleep(20)
            await commit(c, 7)
            return await examine(c, topic="T", group="G")

    report = run(main())

    assert broken(report) == ["offset"]
    assert "offset 7 of" in first(report)
    assert "which ends at 1" in first(report)
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
    assert "which ends at 1" in report.step("offset").finding.notes[0]


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
    assert "the group has no offset in" in offset.finding.notes[0]


def test_a_group_that_broadcasts_keeps_its_own_offsets() -> None:
    async def main() -> Report:
        async with real_cluster(queues=1) as c, reading(c, Basket(), broadcast=True):
            return await examine(c, topic="T", group="G")

    report = run(main())

    assert report.is_well
    assert "keeps its own offsets" in report.step("offset").finding.text
    assert "each read by all" in report.step("owner").finding.text


def test_a_group_that_comes_back_late_and_is_about_to_lose_messages() -> None:
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
    assert "has not read is 2 d 12 h old, and is kept for 3 d" in first(report)


def test_messages_that_grow_old_as_nobody_reads_them_are_a_note_of_their_step() -> None:
    async def main() -> Report:
        async with real_cluster(queues=1) as c:
            await c.send("T", b"1")
            await commit(c, 0)
            c.clock.sleep_ms(60 * HOUR_MS)
            return await examine(c, topic="T", group="G")

    report = run(main())

    assert broken(report) == ["group"]
    assert report.step("retention").finding.text == "group is broken"
    assert "has not read is 2 d 12 h old, and is kept for 3 d" in report.step("retention").finding.notes[0]


def test_messages_that_were_deleted_while_the_group_was_away() -> None:
    async def main() -> Report:
        async with real_cluster(queues=1) as c:
            await c.send("T", *[random.Random(1).randbytes(1 << 20)] * 5)  # more than a file of the log holds
            await commit(c, 0)
            c.clock.sleep_ms(80 * HOUR_MS)
            await until(c.broker.parts.store.drop_expired)  # once it is safe on the disk
            await until(lambda: c.broker.parts.store.min_offset("T", 0) > 0)
            return await examine(c, topic="T", group="G")  # a member would go on behind them at once

    report = run(main())

    assert broken(report) == ["group"]
    assert report.step("retention").finding.notes == ("3 messages of T@broker-a:0 were deleted before G had read them",)


def test_how_many_messages_were_deleted_before_they_were_read() -> None:
    place = BrokerPlace("broker-a", "DefaultCluster", 0, Address("10.0.1.1", 10911))
    queue = QueueLag(
        queue=MessageQueue("T", "broker-a", 0), min_offset=9, max_offset=12, committed=2, messages=3, time_ms=5, lost=7
    )
    visit = Visit(DoctorSettings(name_servers="10.0.0.1:9876"), Surroundings(), "T", "G")
    visit.places = [place]
    visit.broker_settings = {place: {"fileReservedTime": "72"}}
    visit.lag = GroupLag(group="G", at_ms=0, queues=(queue,))

    finding = run(look_at_retention(visit))

    assert finding.verdict is Verdict.BROKEN
    assert finding.text == f"7 messages of {queue.queue} were deleted before G had read them"


def test_brokers_that_do_not_tell_leave_it_unknown() -> None:
    visit = Visit(DoctorSettings(name_servers="10.0.0.1:9876"), Surroundings(), None, None)

    assert run(look_at_retention(visit)).verdict is Verdict.UNKNOWN


def test_how_far_behind_it_is_and_for_how_long_messages_are_kept() -> None:
    async def main() -> Report:
        async with real_cluster(queues=1) as c:
            await c.send("T", b"1", b"2")
            await commit(c, 1)
            await asyncio.sleep(60)
            return await examine(c, topic="T", group="G")

    report = run(main())

    assert report.step("offset").finding.text == "1 message, 1 min behind"
    assert report.step("retention").finding.text == "broker-a keeps messages for 3 d"
    assert broken(report) == ["group"]
    assert first(report) == "nobody is in group G now"

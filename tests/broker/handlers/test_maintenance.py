"""Deletion by an administrator, and the state of the replicas."""

import json

import pytest
from tests.broker.handlers.admin_talk import Desk, real_answers
from tests.golden import needs_golden
from tests.store.open_store import OpenStore, numbered

from pocketmq.codes import RequestCode
from pocketmq.protocol.bodies.topics import ReplicationStatus
from pocketmq.testing import run

HOUR_MS = 3_600_000


def aged() -> Desk:
    """Ten log files, all but the newest older than the retention time, at an hour without automatic deletion."""
    desk = Desk(OpenStore.small(retention_hours=1, max_deletes_per_run=2, prepared_files=12))
    desk.opened.send(*numbered(10, size=3900))
    desk.opened.settle(20)
    desk.opened.clock.advance_ms(2 * HOUR_MS)
    return desk


def test_an_administrator_deletes_expired_log_files() -> None:
    async def main() -> None:
        desk = aged()
        assert len(desk.opened.names("commitlog")) > 9

        await desk.done(RequestCode.DELETE_EXPIRED_COMMITLOG)
        desk.opened.settle(5)

        assert desk.store.facts.log_start == 9 * 4096
        assert desk.opened.bodies() == numbered(10, size=3900)[-1:]

    run(main())


def test_unexpired_files_stay_on_a_full_disk() -> None:
    async def main() -> None:
        desk = Desk(OpenStore.small(disk_clean_ratio=0.0001, disk_force_ratio=0.0001))
        desk.opened.send(*numbered(5, size=3900))
        desk.opened.run_workers()

        await desk.done(RequestCode.DELETE_EXPIRED_COMMITLOG)

        assert desk.store.facts.log_start == 0

    run(main())


def test_an_administrator_removes_expired_queue_entries() -> None:
    async def main() -> None:
        desk = aged()
        await desk.done(RequestCode.DELETE_EXPIRED_COMMITLOG)

        await desk.done(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
        desk.opened.tick()

        assert (desk.store.min_offset("T", 0), desk.store.max_offset("T", 0)) == (9, 10)

    run(main())


@pytest.mark.parametrize("times", [1, 2])
def test_maintenance_of_an_empty_store_does_nothing(times: int) -> None:
    async def main() -> None:
        desk = Desk()

        for _ in range(times):
            await desk.done(RequestCode.DELETE_EXPIRED_COMMITLOG)
            await desk.done(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)

        desk.opened.send()
        assert desk.opened.bodies() == [b"body"]

    run(main())


@needs_golden
def test_the_broker_reports_no_replicas_as_apache_does() -> None:
    async def main() -> None:
        desk = Desk()
        desk.opened.send()
        ((asked, told),) = real_answers(RequestCode.GET_BROKER_HA_STATUS)

        answer = await desk.answer(asked.command)

        assert ReplicationStatus.decode(answer.body).master_commit_log_max_offset == desk.store.end
        ours, real = json.loads(answer.body), json.loads(told.command.body)
        assert ours | {"masterCommitLogMaxOffset": 0} == real | {"masterCommitLogMaxOffset": 0}

    run(main())

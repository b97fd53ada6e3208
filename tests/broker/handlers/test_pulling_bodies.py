"""Pulls that request only bodies: any kind of pull may do so, and everything else is as with other pulls."""

import asyncio
import struct
from itertools import pairwise

import pytest
from tests.broker.handlers.pulling_kit import bodies, filled
from tests.broker.running import in_virtual_time, offsets_of, pulling, running

from pocketmq.codes import PullFlag, RequestCode, ResponseCode
from pocketmq.protocol.body_pack import packs_in
from pocketmq.protocol.command import Command

pytestmark = pytest.mark.usefixtures("twin")
FLAGS = PullFlag.SUBSCRIPTION | PullFlag.ONLY_BODIES
CODES = [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE]


def packed(answer: Command) -> list[bytes]:
    found = []
    for pack in packs_in(answer.body):
        starts = struct.unpack_from(f"<{pack.rows + 1}I", answer.body, pack.starts)
        found += [answer.body[pack.bodies + start : pack.bodies + end] for start, end in pairwise(starts)]
    return found


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("binary", [False, True])
@in_virtual_time
async def test_bodies_alone_are_returned_for_every_such_pull(code: RequestCode, binary: bool) -> None:
    async with running() as broker:
        client = await filled(broker, 9, tags="ab")

        for _ in range(3):
            answer = await client.ask(code, pulling(2, flags=FLAGS), binary=binary)

            assert answer.code == ResponseCode.SUCCESS
            assert packed(answer) == [b"%d" % number for number in range(2, 9)]
            assert offsets_of(answer) == (9, 0, 9)


@pytest.mark.parametrize("code", CODES)
@in_virtual_time
async def test_if_messages_are_skipped_the_others_are_complete_because_bodies_have_no_offsets(
    code: RequestCode,
) -> None:
    async with running() as broker:
        client = await filled(broker, 9, tags="ab")

        for _ in range(3):
            answer = await client.ask(code, pulling(2, flags=FLAGS, expression="a"))

            assert bodies(answer) == [b"%d" % number for number in range(2, 9, 2)]
            assert offsets_of(answer) == (9, 0, 9)


@pytest.mark.parametrize("code", CODES)
@in_virtual_time
async def test_a_held_pull_returns_the_body_alone(code: RequestCode) -> None:
    async with running() as broker:
        client, other = await filled(broker, 3), await broker.connect()
        pull = asyncio.ensure_future(client.ask(code, pulling(3, flags=FLAGS, wait_ms=15_000)))
        await asyncio.sleep(7)
        assert not pull.done()

        await other.sent(b"news")

        assert packed(await pull) == [b"news"]


@in_virtual_time
async def test_bodies_alone_count_as_messages_and_other_pulls_get_complete_records() -> None:
    async with running() as broker:
        client = await filled(broker, 9)

        for number in range(3):
            assert packed(await client.pull(flags=FLAGS, group="bodies")) == bodies(await client.pull(group="records"))
            ours, others = (broker.parts.state.stats.pulled(group, "T") for group in ("bodies", "records"))
            assert (ours.count, ours.bytes) == (others.count, others.bytes)
            assert ours.count == 9 * (number + 1)

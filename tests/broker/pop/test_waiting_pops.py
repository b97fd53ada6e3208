"""Held pops on both event loops."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from pocketmq.broker.reads.filters import EVERYTHING
from pocketmq.broker.reads.waiting_pops import ALL_QUEUES, WaitingKey, WaitingPops


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("seconds", [0.0, 0.0004, -1.0])
def test_a_pop_may_be_held_for_no_time(loop_factory: Callable[[], asyncio.AbstractEventLoop], seconds: float) -> None:
    async def main() -> bool:
        return await WaitingPops().wait(WaitingKey("orders", "billing", ALL_QUEUES), EVERYTHING, seconds)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        assert not runner.run(main())

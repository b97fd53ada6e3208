"""Steps of a long answer."""

import asyncio

from pocketmq.net.loops import STEP_SECONDS, Steps
from pocketmq.testing import run


def test_long_work_in_steps_pauses_for_others() -> None:
    async def main() -> None:
        steps = Steps()
        turns: list[str] = []
        asyncio.get_running_loop().call_soon(turns.append, "another")

        await steps.pause()
        assert turns == []
        await asyncio.sleep(2 * STEP_SECONDS)
        turns.clear()
        asyncio.get_running_loop().call_soon(turns.append, "another")
        await steps.pause()

        assert turns == ["another"]

    run(main())

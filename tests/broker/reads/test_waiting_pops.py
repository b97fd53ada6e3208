"""Held pops on both event loops."""

from tests.net.talk import NewLoop, every_loop, run_on

from pocketmq.broker.reads.filters import EVERYTHING
from pocketmq.broker.reads.waiting_pops import WaitingKey, WaitingPops


@every_loop
def test_a_pop_whose_time_is_over_at_once_is_answered(new_loop: NewLoop) -> None:
    """uvloop has timers of another kind for it."""

    async def main() -> None:
        held = WaitingPops()
        assert not await held.wait(WaitingKey("T", "G", 0), EVERYTHING, 0)
        assert not await held.wait(WaitingKey("T", "G", 0), EVERYTHING, 0.0004)
        assert len(held) == 0

    run_on(new_loop, main())

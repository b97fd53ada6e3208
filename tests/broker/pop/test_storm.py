"""A small storm in each way to sync and with each twin; `make pop-storm` runs the large one."""

import pytest
from tests.broker.pop.storm import Checker, Scale, storm

from pocketmq.protocol.pop import Handle
from pocketmq.store.settings import FlushMode
from pocketmq.testing import run

pytestmark = pytest.mark.usefixtures("twin")


@pytest.mark.parametrize(("flush", "seed"), [(FlushMode.ASYNC, 1), (FlushMode.ASYNC, 2), (FlushMode.SYNC, 3)])
def test_members_that_join_stall_and_die_lose_nothing_and_share_nothing(flush: FlushMode, seed: int) -> None:
    checker = run(storm(Scale(members=20, messages=2_000, queues=3), seed, flush))

    assert checker.faults == []
    assert checker.facts["late acks"] > 0
    assert checker.facts["joined"] > 20


def test_the_checker_finds_each_fault() -> None:
    checker, first, second = Checker(), Handle(0, 1_000, 500, 0, 0, "b", 0, 0), Handle(0, 1_499, 500, 0, 1, "b", 0, 0)
    checker.received(1, 7, 0, first)
    checker.received(2, 7, 1, second)
    checker.acknowledged(7)
    checker.received(3, 7, 1, second._replace(pop_ms=2_000))
    checker.check_end(10, [(1, 4), (1, 4), (2, 3)])

    text = "\n".join(checker.faults)
    assert "members 1 and 2 had it, 1 ms too early" in text
    assert "message 7 returned to member 3 after its ack" in text
    assert "message 7: attempt 1 after 1" in text
    assert "message 0: 0 times handled, 0 dead letters" in text
    assert "message 1: 0 times handled, 2 dead letters" in text
    assert "message 2 became a dead letter after 3 attempts" in text

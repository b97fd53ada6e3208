import pytest

from pocketmq.store.tools import findings as log_facts
from pocketmq.store.tools.findings import LogFacts


def test_offsets_inside_gaps_are_known() -> None:
    facts = LogFacts(0)
    facts.add_hole(10, 20)
    facts.add_hole(30, 31)

    assert [offset for offset in range(40) if facts.in_hole(offset)] == [*range(10, 20), 30]
    assert facts.last_hole_end == 31


def test_without_gaps_no_queue_has_ended() -> None:
    assert LogFacts(100).last_hole_end < 0
    assert not LogFacts(100).in_hole(100)


def test_too_many_gaps_become_one_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_facts, "MAX_HOLES", 2)
    facts = LogFacts(0)

    for begin in (0, 10, 20, 30):
        facts.add_hole(begin, begin + 5)

    assert [offset for offset in (4, 6, 12, 17, 25, 34, 36) if facts.in_hole(offset)] == [4, 12, 17, 25, 34]


def test_the_most_complete_fact_is_kept() -> None:
    facts = LogFacts(0)

    facts.add_known(50, "a")
    facts.add_known(40, "b")

    assert (facts.known_end, facts.known_by) == (50, "a")

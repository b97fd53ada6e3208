"""Any order of sends, decisions, checks, crashes and restarts: committed messages are delivered, rolled back ones
never.

A producer answers every question as it decided, or says that it does not know yet. Messages that a power loss took away before
they were safe are ignored: they were never acknowledged to their producer.
"""

import logging
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Self

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.broker.transactions.kit import COMMIT, GROUP, ROLLBACK, UNKNOWN, Lab

from pocketmq.broker.messages import StoredPosition
from pocketmq.broker.settings import TransactionSettings
from pocketmq.codes import TransactionState
from pocketmq.errors import ImpossibleRequest
from pocketmq.model.names import HALF_TOPIC
from pocketmq.testing.disk.model import Survives

ACTIONS = (
    *("send",) * 6,
    *("decide",) * 5,
    *("check",) * 4,
    *("answer",) * 3,
    *("lose_questions", "note", "save_offsets", "sync", "restart", "crash", "hang_up", "call_back"),
)


class History:
    """A producer and its broker, which now and then is not there."""

    def __init__(self, seed: int, survives: Survives, *, with_index: bool = True) -> None:
        self.random = random.Random(seed)
        self.survives = survives
        self.lab = Lab.new(transaction=TransactionSettings(max_checks=1_000_000), index_enabled=with_index)
        self.truth: dict[str, TransactionState] = {}
        self.places: dict[str, StoredPosition] = {}
        self.questions: list[tuple[str, StoredPosition]] = []
        self.asked: set[str] = set()

    def play(self, actions: int) -> Self:
        for _ in range(actions):
            getattr(self, self.random.choice(ACTIONS))()
        return self

    # what may happen

    def send(self) -> None:
        body = f"{len(self.truth):04d}"
        key = f"KEY-{body}"
        self.truth[key] = self.random.choice((COMMIT, ROLLBACK, UNKNOWN))
        self.places[key] = self.lab.send(body.encode())

    def decide(self) -> None:
        """The producer repeats its decision about one of its transactions."""
        if self.truth:
            key = self.random.choice(list(self.truth))
            self._end(key, self.places[key], check=False)

    def check(self) -> None:
        for place in self.lab.check(self.random.choice((10, 6_000, 30_000))):
            key = self.lab.message(place).message_id
            self.asked.add(key)
            self.questions.append((key, place))

    def answer(self) -> None:
        """Some of the questions are answered, in any order; some twice."""
        for key, place in self.random.choices(self.questions, k=len(self.questions)) if self.questions else ():
            self._end(key, place, check=True)

    def _end(self, key: str, place: StoredPosition, *, check: bool) -> None:
        lost = nullcontext() if self.survives == "everything" else suppress(ImpossibleRequest)
        with lost:
            self.lab.end(place, self.truth[key], key=key, check=check)

    def lose_questions(self) -> None:
        self.questions.clear()

    def note(self) -> None:
        self.lab.transactions.ledger.write_ops()

    def save_offsets(self) -> None:
        self.lab.save_offsets()

    def sync(self) -> None:
        self.lab.opened.settle(1)

    def restart(self) -> None:
        self.lab = self.lab.restart()

    def crash(self) -> None:
        self.lab = self.lab.crash(self.survives, self.random.randrange(1_000_000))

    def hang_up(self) -> None:
        self.lab.connected.clear()

    def call_back(self) -> None:
        self.lab.connected.add(GROUP)

    # how it must end

    def finish(self) -> Self:
        """The producer stays connected, and answers every check-back."""
        self.call_back()
        for _ in range(3):
            self.lose_questions()
            self.lab.clock.advance_ms(6_000)
            self.check()
            for key, place in self.questions:
                self._end(key, place, check=True)
        return self

    def verify(self, *, at_most: int = 1) -> None:
        stored = {message.message_id for message in self.lab.messages(HALF_TOPIC, 0)}
        delivered = Counter(message.message_id for message in self.lab.messages())
        open_now = Counter(one.transaction_id for one in self.lab.transactions.undecided(10_000))
        if self.survives == "everything":
            assert stored == self.truth.keys()
        for key in stored:
            match self.truth[key]:
                case TransactionState.COMMIT:
                    assert 1 <= delivered[key] <= at_most, key
                    assert open_now[key] == 0, key
                case TransactionState.ROLLBACK:
                    assert (delivered[key], open_now[key]) == (0, 0), key
                case TransactionState.UNKNOWN:
                    assert (delivered[key], open_now[key]) == (0, 1), key
                    assert key in self.asked, key


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.sampled_from(("everything", "any", "nothing")))
def test_committed_messages_are_delivered_once_and_others_never(seed: int, survives: Survives) -> None:
    History(seed, survives).play(60).finish().verify()


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.sampled_from(("everything", "any")))
def test_without_an_index_committed_messages_are_delivered_at_least_once(seed: int, survives: Survives) -> None:
    History(seed, survives, with_index=False).play(60).finish().verify(at_most=1_000)

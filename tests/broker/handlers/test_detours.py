"""Sends that do not simply go to their queue: retries that are dead, half messages, and timed ones that can be recalled."""

from random import Random

import pytest
from msgspec.structs import replace
from tests.broker.states import state_over
from tests.store.open_store import OpenStore

from pocketmq.broker.handlers.destinations import Destinations
from pocketmq.broker.handlers.recalling import recall_handle_for
from pocketmq.broker.handlers.retries import Retries
from pocketmq.broker.handlers.sending import Sending
from pocketmq.broker.messages import Draft, route
from pocketmq.broker.settings import TimerSettings
from pocketmq.broker.state import BrokerState
from pocketmq.codes import Version
from pocketmq.errors import InvalidMessage, NoPermission
from pocketmq.model.delay import DELAY_LEVELS
from pocketmq.model.message_id import RecallHandle
from pocketmq.model.names import HALF_TOPIC
from pocketmq.protocol.api.messages import SendMessage
from pocketmq.testing import FakeClock

HALF = {"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": "K"}


@pytest.fixture
def state() -> BrokerState:
    return state_over(OpenStore.small())


@pytest.fixture
def sending(state: BrokerState) -> Sending:
    destinations = Destinations(state.topics, state.settings, state.clock, lambda: None)
    return Sending(state, destinations, Retries(state, lambda: None, Random(1)))


def draft(properties: dict[str, str] | None = None, topic: str = "T", reconsume_times: int = 0) -> Draft:
    return Draft(
        topic=topic,
        queue_id=2,
        body=b"body",
        properties=dict(properties or {}),
        born_ms=0,
        born_host=bytes(8),
        reconsume_times=reconsume_times,
    )


def taken(sending: Sending, sent: Draft) -> Draft:
    header = SendMessage("PG", sent.topic, "TBW102", 4, sent.queue_id, 0, 0, 0, max_reconsume_times=3)
    sending.redirect(sent, header, Version.V5_3_3)
    return sent


def test_a_plain_message_goes_to_its_own_topic(sending: Sending) -> None:
    assert taken(sending, draft({"UNIQ_KEY": "K"})) == draft({"UNIQ_KEY": "K"})


@pytest.mark.parametrize("word", ["true", "TRUE", "True"])
def test_a_message_of_a_transaction_becomes_a_half_message(sending: Sending, word: str) -> None:
    half = taken(sending, draft(HALF | {"TRAN_MSG": word}))

    assert (half.topic, half.queue_id) == (HALF_TOPIC, 0)
    assert (half.properties["REAL_TOPIC"], half.properties["REAL_QID"]) == ("T", "2")


@pytest.mark.parametrize("word", ["false", "", "yes"])
def test_a_message_with_transaction_text_in_its_body_is_not_a_transaction(sending: Sending, word: str) -> None:
    assert taken(sending, draft(HALF | {"TRAN_MSG": word})).topic == "T"


@pytest.mark.parametrize(("times", "delay", "is_half"), [(0, "3", True), (1, "0", True), (1, "3", False)])
def test_a_delayed_retry_of_a_transaction_is_a_retry(sending: Sending, times: int, delay: str, is_half: bool) -> None:
    sent = taken(sending, draft(HALF | {"DELAY": delay}, reconsume_times=times))

    assert (sent.topic == HALF_TOPIC) is is_half


def test_a_broker_with_transactions_off_refuses_them(sending: Sending, state: BrokerState) -> None:
    state.settings.now = replace(state.settings.now, transactions_rejected=True)

    with pytest.raises(NoPermission, match="rejectTransactionMessage"):
        taken(sending, draft(HALF))
    assert taken(sending, draft()).topic == "T"


def test_a_transaction_without_a_producer_group_is_refused(sending: Sending) -> None:
    with pytest.raises(InvalidMessage, match="PGROUP"):
        taken(sending, draft({"TRAN_MSG": "true"}))


@pytest.mark.parametrize(("times", "topic"), [(3, "%RETRY%G"), (4, "%DLQ%G")])
def test_a_retry_after_the_last_attempt_becomes_a_dead_letter(sending: Sending, times: int, topic: str) -> None:
    assert taken(sending, draft(topic="%RETRY%G", reconsume_times=times)).topic == topic


def test_only_a_waiting_timed_message_can_be_recalled() -> None:
    timed, usual = draft({"UNIQ_KEY": "K", "TIMER_DELAY_SEC": "5"}), draft({"UNIQ_KEY": "K"})
    for one in (timed, usual):
        route(one, FakeClock(), DELAY_LEVELS, TimerSettings())

    handle = recall_handle_for(timed, "broker-a")

    assert handle is not None
    assert RecallHandle.parse(handle).topic == "T"
    assert recall_handle_for(usual, "broker-a") is None

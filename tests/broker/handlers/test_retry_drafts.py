"""The destination of a message that a group could not consume."""

from random import Random
from typing import Any

import pytest
from tests.broker.states import state_over
from tests.model.test_message import stored
from tests.store.open_store import OpenStore

from pocketmq.broker.handlers.retries import Retries
from pocketmq.broker.messages import Draft
from pocketmq.broker.settings import BrokerSettings
from pocketmq.codes import Version
from pocketmq.errors import GroupNotFound, NoPermission
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.api.messages import SendMessage, SendMessageBack
from pocketmq.protocol.bodies.clients import SubscriptionGroupConfig
from pocketmq.protocol.bodies.topics import TopicConfig

QUEUE = MessageQueue("T", "broker-a", 0)


class Setup:
    """The tables of a broker, and the code that decides about retries."""

    def __init__(self, *, auto_create: bool = True) -> None:
        opened = OpenStore.small()
        state = state_over(opened, BrokerSettings(auto_create_group=auto_create))
        self.clock, self.topics, self.groups, self.locks = opened.clock, state.topics, state.groups, state.locks
        self.announced = 0
        self.retries = Retries(state, self._announce, Random(1))

    def _announce(self) -> None:
        self.announced += 1

    def group(self, queues: int = 1, most: int = 16) -> SubscriptionGroupConfig:
        self.groups.put([SubscriptionGroupConfig("G", retry_queue_nums=queues, retry_max_times=most)], 0)
        found = self.groups.get("G")
        assert found is not None
        return found

    def sent_back(
        self,
        times: int = 0,
        level: int = 0,
        *,
        client_max: int | None = None,
        version: int = Version.V5_3_3,
        properties: str = "TAGS\x01A\x02WAIT\x01true\x02",
        group: SubscriptionGroupConfig | None = None,
        **changes: Any,
    ) -> Draft:
        group = group or self.group()
        message = stored(properties, reconsume_times=times, **changes)
        topic = self.retries.retry_topic_of(group, unit_mode=False)
        header = SendMessageBack(message.log_offset, "G", level, max_reconsume_times=client_max)
        return self.retries.sent_back(message, group, topic, header, version)

    def resent(self, times: int, *, client_max: int | None = 3, version: int = Version.V5_3_3) -> Draft:
        draft = Draft(
            topic="%RETRY%G",
            queue_id=0,
            body=b"again",
            properties={"DELAY": "4"},
            born_ms=0,
            born_host=bytes(8),
            reconsume_times=times,
        )
        header = SendMessage("P", "%RETRY%G", "TBW102", 4, 0, 0, 0, 0, max_reconsume_times=client_max)
        self.retries.retarget_resend(draft, header, version)
        return draft


def test_the_next_attempt_is_a_copy_of_the_message() -> None:
    message = stored("TAGS\x01A\x02WAIT\x01true\x02")

    draft = Setup().sent_back(sys_flag=8, prepared_offset=77)

    assert (draft.topic, draft.queue_id) == ("%RETRY%G", 0)
    assert (draft.body, draft.flag, draft.sys_flag) == (message.body, message.flag, 8)
    assert (draft.born_ms, draft.born_host) == (message.born_ms, message.packed_born_host)
    assert (draft.reconsume_times, draft.prepared_offset) == (1, 0)
    assert draft.properties == {
        "TAGS": "A",
        "WAIT": "false",
        "RETRY_TOPIC": "TopicTest",
        "ORIGIN_MESSAGE_ID": message.offset_id,
        "DELAY": "3",
    }


def test_the_first_origin_is_kept() -> None:
    draft = Setup().sent_back(1, properties="RETRY_TOPIC\x01First\x02ORIGIN_MESSAGE_ID\x01ID\x02", topic="%RETRY%G")

    assert (draft.properties["RETRY_TOPIC"], draft.properties["ORIGIN_MESSAGE_ID"]) == ("First", "ID")


@pytest.mark.parametrize(("level", "times", "delay"), [(0, 0, "3"), (0, 5, "8"), (1, 5, "1"), (18, 0, "18")])
def test_the_client_chooses_the_delay_or_it_increases_with_the_attempts(level: int, times: int, delay: str) -> None:
    draft = Setup().sent_back(times, level)

    assert (draft.topic, draft.properties["DELAY"], draft.reconsume_times) == ("%RETRY%G", delay, times + 1)


@pytest.mark.parametrize(
    ("times", "level", "client_max", "version", "is_dead"),
    [
        (15, 0, None, Version.V5_3_3, False),
        (16, 0, None, Version.V5_3_3, True),
        (0, -1, None, Version.V5_3_3, True),
        (1, 0, 2, Version.V5_3_3, False),
        (2, 0, 2, Version.V5_3_3, True),
        (2, 0, 2, Version.V3_4_9, True),
        (2, 0, 2, Version.V3_4_9 - 1, False),
        (20, 0, 100, Version.V5_3_3, False),
        (0, 0, 0, Version.V5_3_3, True),
    ],
)
def test_after_the_last_attempt_the_draft_is_a_dead_letter(
    times: int, level: int, client_max: int | None, version: int, is_dead: bool
) -> None:
    setup = Setup()

    draft = setup.sent_back(times, level, client_max=client_max, version=version)

    assert draft.topic == ("%DLQ%G" if is_dead else "%RETRY%G")
    assert ("%DLQ%G" in setup.topics) is is_dead
    if is_dead:
        assert (draft.queue_id, draft.properties["DELAY"]) == (0, "0")


def test_retries_are_spread_over_the_queues_of_the_group() -> None:
    setup = Setup()
    group = setup.group(queues=3)

    assert {setup.sent_back(group=group).queue_id for _ in range(50)} == {0, 1, 2}


def test_a_retry_only_goes_to_a_readable_queue() -> None:
    setup = Setup()
    setup.sent_back(group=setup.group(queues=2))
    group = setup.group(queues=50)

    assert {setup.sent_back(group=group).queue_id for _ in range(50)} == {0, 1}


def test_topics_created_for_retries_are_announced_once() -> None:
    setup = Setup()

    setup.sent_back()
    setup.sent_back()
    assert setup.announced == 1
    setup.sent_back(16)
    setup.sent_back(16)

    assert setup.announced == 2
    dead = setup.topics.require("%DLQ%G")
    assert (dead.read_queue_nums, dead.write_queue_nums, dead.perm) == (1, 1, 6)


def test_a_retry_topic_without_write_permission_refuses_retries() -> None:
    setup = Setup()
    setup.topics.put([TopicConfig("%RETRY%G", 1, 1, 4)], 0)

    with pytest.raises(NoPermission, match="%RETRY%G"):
        setup.sent_back()


def test_the_retry_topic_of_a_unit_is_marked() -> None:
    setup = Setup()

    assert setup.retries.retry_topic_of(setup.group(), unit_mode=True).topic_sys_flag == 2


@pytest.mark.parametrize(
    ("times", "client_max", "version", "is_dead"),
    [
        (3, 3, Version.V5_3_3, False),
        (4, 3, Version.V5_3_3, True),
        (4, 3, Version.V3_4_9 - 1, False),
        (16, None, Version.V5_3_3, False),
        (17, None, Version.V5_3_3, True),
    ],
)
def test_a_retry_sent_by_the_client_already_counts_the_failure(
    times: int, client_max: int | None, version: int, is_dead: bool
) -> None:
    setup = Setup()

    draft = setup.resent(times, client_max=client_max, version=version)

    if is_dead:
        assert (draft.topic, draft.queue_id, draft.properties["DELAY"]) == ("%DLQ%G", 0, "-1")
        assert "%DLQ%G" in setup.topics
    else:
        assert (draft.topic, draft.properties["DELAY"]) == ("%RETRY%G", "4")
    assert draft.reconsume_times == times


def test_a_group_with_order_locks_sends_a_retry_only_to_give_up() -> None:
    setup = Setup()
    setup.locks.lock("G", "client", [QUEUE], setup.clock.monotonic())

    assert setup.resent(0).topic == "%DLQ%G"
    setup.clock.advance_ms(60_001)
    assert setup.resent(0).topic == "%RETRY%G"


def test_a_missing_group_is_created_or_refused() -> None:
    setup = Setup()
    setup.resent(0)
    assert "G" in setup.groups

    with pytest.raises(GroupNotFound):
        Setup(auto_create=False).resent(0)

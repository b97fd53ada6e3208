"""The destination of a send: checks in the order of RocketMQ, and topics that are created by sends."""

from collections.abc import Callable

import pytest
from tests.broker.running import sending

from pocketmq.broker.handlers.destinations import Destinations
from pocketmq.broker.settings import BrokerSettings, SettingsInUse
from pocketmq.broker.topics import TopicTable
from pocketmq.codes import Perm, TopicFlag
from pocketmq.errors import InvalidName, InvalidParameter, NoPermission, PocketMQError, TopicNotFound
from pocketmq.model.names import UNSENDABLE_TOPICS
from pocketmq.net.peer import Peer
from pocketmq.protocol.api.messages import SendMessageV2
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.testing import FakeClock

PEER = Peer()


class Stage:
    """Destinations over a table with topic T."""

    def __init__(
        self,
        *,
        auto_create: bool = True,
        max_topics: int = 100,
        max_retry_topics: int = 100,
        permission: int = Perm.READ_WRITE,
    ) -> None:
        self.topics = TopicTable(
            "DefaultCluster",
            "broker-a",
            auto_create=auto_create,
            max_topics=max_topics,
            max_retry_topics=max_retry_topics,
        )
        self.topics.put([TopicConfig("T", 4, 4), TopicConfig("InOrder", 4, 4, order=True)], 0)
        self.settings = SettingsInUse(BrokerSettings(permission=permission))
        self.announced = 0
        self.destinations = Destinations(self.topics, self.settings, FakeClock(), self._announce)

    def _announce(self) -> None:
        self.announced += 1

    def queue_id(self, header: SendMessageV2) -> int:
        return self.destinations.queue_id(PEER, header)


def test_a_send_goes_to_its_requested_queue() -> None:
    place = Stage()

    assert [place.queue_id(sending("T", queue_id)) for queue_id in range(4)] == [0, 1, 2, 3]
    assert not place.announced


@pytest.mark.parametrize("queue_id", [-1, -7, -(2**31)])
def test_a_send_without_a_queue_goes_to_any_writable_one(queue_id: int) -> None:
    place = Stage()
    place.topics.put([TopicConfig("T", 8, 3)], 0)

    assert {place.queue_id(sending("T", queue_id)) for _ in range(200)} == {0, 1, 2}


@pytest.mark.parametrize(("read", "write", "last"), [(4, 4, 3), (8, 2, 7), (2, 8, 7)])
def test_the_larger_number_of_queues_is_the_limit(read: int, write: int, last: int) -> None:
    place = Stage()
    place.topics.put([TopicConfig("T", read, write)], 0)

    assert place.queue_id(sending("T", last)) == last
    with pytest.raises(InvalidParameter, match=rf"queueId\[{last + 1}\] is illegal"):
        place.queue_id(sending("T", last + 1))


def test_a_topic_without_writable_queues_has_none_for_a_send_without_a_queue() -> None:
    place = Stage()
    place.topics.put([TopicConfig("T", 4, 0)], 0)

    with pytest.raises(InvalidParameter, match="no queue to write to"):
        place.queue_id(sending("T", -1))


def test_the_broker_does_not_enforce_the_write_permission_of_a_topic() -> None:
    place = Stage()
    place.topics.put([TopicConfig("T", 4, 4, Perm.READ)], 0)

    assert place.queue_id(sending("T", 1)) == 1


@pytest.mark.parametrize("topic", sorted(UNSENDABLE_TOPICS))
def test_clients_cannot_send_to_topics_of_the_broker(topic: str) -> None:
    with pytest.raises(NoPermission, match=rf"Sending message to topic\[{topic}\] is forbidden"):
        Stage().queue_id(sending(topic))


@pytest.mark.parametrize(
    ("place", "header", "error"),
    [
        (lambda: Stage(permission=Perm.READ), sending("InOrder", 99), NoPermission),
        (Stage, sending("bad*name", 99), InvalidName),
        (Stage, sending("SCHEDULE_TOPIC_XXXX", 99, template="None"), NoPermission),
        (Stage, sending("New", 99, template="None"), TopicNotFound),
        (Stage, sending("T", 99, template="None"), InvalidParameter),
    ],
    ids=["permission", "name", "own topic", "unknown topic", "queue"],
)
def test_the_first_reason_in_the_order_of_apache_is_reported(
    place: Callable[[], Stage], header: SendMessageV2, error: type[PocketMQError]
) -> None:
    with pytest.raises(error):
        place().queue_id(header)


def test_a_read_only_broker_refuses_ordered_topics_only() -> None:
    place = Stage(permission=Perm.READ)

    assert place.queue_id(sending("T", 1)) == 1
    place.settings.now = BrokerSettings()
    assert place.queue_id(sending("InOrder", 1)) == 1


@pytest.mark.parametrize(("asked", "made"), [(1, 1), (8, 8), (100, 8)])
def test_a_new_topic_gets_the_settings_of_its_template_and_is_registered(asked: int, made: int) -> None:
    place = Stage()

    assert place.queue_id(sending("New", 0, queues=asked)) == 0
    assert place.queue_id(sending("New", 0, queues=asked)) == 0

    topic = place.topics.require("New")
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (made, made, Perm.READ_WRITE)
    assert place.announced == 1


@pytest.mark.parametrize(
    ("topic", "flag"), [("New", TopicFlag.UNIT), ("%RETRY%G", TopicFlag.UNIT_SUB)], ids=["topic", "retry topic"]
)
@pytest.mark.parametrize("unit_mode", [True, False, None])
def test_a_topic_of_a_unit_is_marked(topic: str, flag: int, unit_mode: bool | None) -> None:
    place = Stage()

    place.queue_id(sending(topic, unit_mode=unit_mode))

    assert place.topics.require(topic).topic_sys_flag == (flag if unit_mode else 0)


@pytest.mark.parametrize(
    ("place", "header", "error"),
    [
        (Stage, sending("New", template="None"), TopicNotFound),
        (Stage, sending("New", template="T"), TopicNotFound),
        (lambda: Stage(auto_create=False), sending("New"), TopicNotFound),
        (lambda: Stage(auto_create=False), sending("New", template="DefaultCluster"), TopicNotFound),
        (lambda: Stage(max_topics=1), sending("New"), TopicNotFound),
        (lambda: Stage(max_retry_topics=0), sending("%RETRY%G"), TopicNotFound),
        (Stage, sending("New", queues=0), InvalidParameter),
        (Stage, sending("New", queues=-1), InvalidParameter),
    ],
)
def test_a_topic_that_may_not_be_created_is_not_created(
    place: Callable[[], Stage], header: SendMessageV2, error: type[PocketMQError]
) -> None:
    here = place()

    with pytest.raises(error):
        here.queue_id(header)

    assert header.topic not in here.topics
    assert not here.announced


def test_a_queue_beyond_those_of_a_new_topic_is_refused_and_the_topic_stays() -> None:
    place = Stage()

    with pytest.raises(InvalidParameter):
        place.queue_id(sending("New", 4, queues=4))

    assert place.topics.require("New").write_queue_nums == 4

"""Messages that consumers send back, as requests."""

import asyncio
from collections.abc import Coroutine
from random import Random

import msgspec
import pytest
from tests.broker.states import state_over
from tests.golden import Captured, captured, needs_golden
from tests.store.kit import HOST, ROOT
from tests.store.open_store import OpenStore

from pocketmq.broker.handlers.retries import Retries, RetryHandlers
from pocketmq.broker.messages import Draft, StoredPosition
from pocketmq.broker.settings import BrokerSettings
from pocketmq.codes import RequestCode, ResponseCode, Version
from pocketmq.errors import FlushDiskTimeout, GroupNotFound, NoPermission, ServerFailed
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import SCHEDULE_TOPIC
from pocketmq.net.peer import Peer
from pocketmq.net.server import Reply, Request
from pocketmq.protocol.api.messages import SendMessage, SendMessageBack, SendMessageV2
from pocketmq.protocol.bodies.clients import SubscriptionGroupConfig
from pocketmq.protocol.command import Command
from pocketmq.protocol.record import decode_records
from pocketmq.store.settings import FlushMode
from pocketmq.testing import run

ROOMY = {"log_file_bytes": 64 * 1024, "queue_file_entries": 1000, "index_slots": 500, "index_entries": 2000}


class Served:
    """A broker's store and tables, with the handlers of retries."""

    def __init__(self, *, auto_create: bool = True, **store_changes: object) -> None:
        self.opened = OpenStore.small(None, None, **{**ROOMY, **store_changes})
        self.store, self.clock = self.opened.store, self.opened.clock
        self.state = state = state_over(self.opened, BrokerSettings(auto_create_group=auto_create))
        self.settings, self.appender, self.stats = state.settings, state.appender, state.stats
        self.topics, self.groups, self.locks = state.topics, state.groups, state.locks
        self.retries = Retries(state, lambda: None, Random(0))
        self.handlers = RetryHandlers(state, self.retries)

    def send(self, body: bytes = b"body", topic: str = "T", **properties: str) -> StoredPosition:
        return self.appender.append(
            Draft(topic=topic, queue_id=0, body=body, properties=properties, born_ms=0, born_host=HOST)
        )

    def start(self, header: SendMessageBack, version: int = Version.V5_3_3) -> Reply | Coroutine[object, object, Reply]:
        command = Command(RequestCode.CONSUMER_SEND_MSG_BACK, version=version)
        return self.handlers.send_back(Request(Peer(), command, header))

    def send_back(self, offset: int, group: str = "G", level: int = 0, client_max: int | None = None) -> Reply:
        outcome = self.start(SendMessageBack(offset, group, level, max_reconsume_times=client_max))
        return outcome if isinstance(outcome, Reply) else run(_awaited(outcome))

    def messages(self, topic: str, queue_id: int = 0) -> list[StoredMessage]:
        return decode_records(self.store.read(topic, queue_id, 0, 32).body())


async def _awaited(outcome: Coroutine[object, object, Reply]) -> Reply:
    return await outcome


def test_the_handler_serves_one_request() -> None:
    served = Served()

    assert served.handlers.table() == {RequestCode.CONSUMER_SEND_MSG_BACK: served.handlers.send_back}


def test_a_message_that_is_sent_back_waits_for_its_next_attempt() -> None:
    served = Served()
    place = served.send(b"again", TAGS="A")

    assert served.send_back(place.log_offset) == Reply()

    (waiting,) = served.messages(SCHEDULE_TOPIC, 2)
    assert (waiting.body, waiting.reconsume_times) == (b"again", 1)
    assert waiting.properties["REAL_TOPIC"] == "%RETRY%G"
    assert "%RETRY%G" in served.topics


def test_after_the_last_attempt_a_message_becomes_a_dead_letter() -> None:
    served = Served()

    served.send_back(served.send(b"dead").log_offset, client_max=0)

    (dead,) = served.messages("%DLQ%G")
    assert (dead.body, dead.properties["DELAY"]) == (b"dead", "0")


def test_a_missing_group_is_created_or_refused() -> None:
    served, strict = Served(), Served(auto_create=False)
    served.send_back(served.send().log_offset, "New")

    with pytest.raises(GroupNotFound) as refusal:
        strict.send_back(strict.send().log_offset, "New")

    assert "New" in served.groups
    assert refusal.value.code == 26


@pytest.mark.parametrize("name", ["", "../up", "a@b"])
def test_an_invalid_group_name_is_a_missing_group(name: str) -> None:
    served = Served()

    with pytest.raises(GroupNotFound):
        served.send_back(served.send().log_offset, name)


def test_a_broker_without_write_permission_accepts_no_retries() -> None:
    served = Served()
    place = served.send()
    served.settings.now = msgspec.structs.replace(served.settings.now, permission=4)

    with pytest.raises(NoPermission, match="sending message is forbidden"):
        served.send_back(place.log_offset)


def test_a_group_without_retry_queues_gets_no_retries() -> None:
    served = Served()
    served.groups.put([SubscriptionGroupConfig("G", retry_queue_nums=0)], 0)
    end = served.store.end

    assert served.send_back(10**9) == Reply()

    assert served.store.end == end
    assert "%RETRY%G" not in served.topics


@pytest.mark.parametrize("offset", [-1, 1, 50, 10**6, 2**63 - 1, -(2**63)])
def test_an_offset_that_starts_no_message_is_refused(offset: int) -> None:
    served = Served()
    served.send(b"x" * 200)

    with pytest.raises(ServerFailed, match=f"look message by offset failed, {offset}") as refusal:
        served.send_back(offset)

    assert refusal.value.code == ResponseCode.SYSTEM_ERROR


def test_an_empty_store_has_no_message_to_retry() -> None:
    with pytest.raises(ServerFailed, match="look message by offset failed, 0"):
        Served().send_back(0)


def test_every_offset_inside_a_message_is_refused() -> None:
    served = Served()
    inner = served.store.record(served.send(b"inner").log_offset)
    assert inner is not None
    place = served.send(b"around " + inner + b"\xda\xa3\x20\xa7" * 20)
    size = served.store.end - place.log_offset

    for offset in range(place.log_offset + 1, place.log_offset + size):
        with pytest.raises(ServerFailed, match="look message"):
            served.send_back(offset)


def test_a_message_that_is_damaged_on_the_disk_is_refused() -> None:
    served = Served()
    place = served.send(b"damaged")
    raw = served.store.record(place.log_offset)
    assert raw is not None
    with served.opened.disk.open(ROOT / "commitlog" / f"{0:020d}") as file:
        file.write_at(place.log_offset + raw.index(b"damaged"), b"D")

    with pytest.raises(ServerFailed, match="look message by offset failed"):
        served.send_back(place.log_offset)


def test_with_sync_flush_a_retry_is_answered_after_the_sync() -> None:
    served = Served(flush=FlushMode.SYNC)
    place = served.send()
    served.opened.run_workers()

    async def main() -> None:
        outcome = served.start(SendMessageBack(place.log_offset, "G", 0))
        assert not isinstance(outcome, Reply)
        answer = asyncio.create_task(_awaited(outcome))
        await asyncio.sleep(0.1)
        assert not answer.done()
        served.opened.run_workers()
        assert await answer == Reply()

    run(main())


def test_a_late_sync_is_reported() -> None:
    served = Served(flush=FlushMode.SYNC)
    place = served.send()
    served.opened.run_workers()

    async def main() -> None:
        outcome = served.start(SendMessageBack(place.log_offset, "G", 0))
        assert not isinstance(outcome, Reply)
        answer = asyncio.create_task(_awaited(outcome))
        await asyncio.sleep(0)
        served.clock.advance_ms(10_000)
        served.store.tick()
        with pytest.raises(FlushDiskTimeout):
            await answer

    run(main())

    assert len(served.messages(SCHEDULE_TOPIC, 2)) == 1


# the captured conversations


def frames(version: str, name: str) -> list[Captured]:
    return [frame for frame in captured(f"wire/{version}/json/{name}.jsonl") if frame.link == "broker"]


def pulled(version: str, name: str) -> list[StoredMessage]:
    answers = [frame.command for frame in frames(version, name) if frame.answers == RequestCode.PULL_MESSAGE]
    return [message for answer in answers if not answer.code for message in decode_records(answer.body)]


def sent_back(version: str, name: str) -> list[tuple[SendMessageBack, int]]:
    commands = [frame.command for frame in frames(version, name) if frame.forward]
    return [
        (SendMessageBack.decode(command.ext), command.version)
        for command in commands
        if command.code == RequestCode.CONSUMER_SEND_MSG_BACK
    ]


def producer_finder(message: StoredMessage, version: str, name: str) -> StoredMessage:
    """What the same message became in the conversation after it was sent back."""
    return next(
        other
        for other in pulled(version, name)
        if other.message_id == message.message_id and other.reconsume_times == message.reconsume_times + 1
    )


@needs_golden
@pytest.mark.parametrize("name", ["retry", "retryDefault"])
@pytest.mark.parametrize("version", ["5.3.3", "4.9.7"])
def test_a_retried_message_has_the_fields_of_apache(version: str, name: str) -> None:
    by_offset = {message.log_offset: message for message in pulled(version, name)}
    served = Served()

    for header, client_version in sent_back(version, name):
        before = by_offset[header.offset]
        group = served.groups.ensure(header.group, 0)
        topic = served.retries.retry_topic_of(group, unit_mode=False)
        draft = served.retries.sent_back(before, group, topic, header, client_version)
        place = served.appender.append(draft)

        ours, theirs = served.store.message(place.log_offset), producer_finder(before, version, name)
        assert ours is not None
        assert ours.properties == theirs.properties
        assert (ours.properties.get("REAL_TOPIC"), ours.topic)[ours.topic != SCHEDULE_TOPIC] == theirs.topic
        for field in ("body", "flag", "sys_flag", "born_ms", "reconsume_times", "packed_born_host"):
            assert getattr(ours, field) == getattr(theirs, field), field


@needs_golden
def test_an_orderly_consumer_that_gives_up_creates_a_dead_letter_as_with_apache() -> None:
    (command,) = [
        frame.command
        for frame in frames("5.3.3", "orderlyDeadLetter")
        if frame.forward and (frame.command.ext or {}).get("b", "").startswith("%RETRY%")
    ]
    header = SendMessageV2.decode(command.ext)
    (theirs,) = [message for message in pulled("5.3.3", "orderlyDeadLetter") if message.topic.startswith("%DLQ%")]
    served = Served()
    draft = Draft(
        topic=header.topic,
        queue_id=header.queue_id,
        body=theirs.body,
        properties=dict(theirs.properties) | {"DELAY": "4"},
        born_ms=header.born_timestamp,
        born_host=HOST,
        reconsume_times=header.reconsume_times or 0,
    )

    assert isinstance(header, SendMessage)
    served.retries.retarget_resend(draft, header, command.version)
    place = served.appender.append(draft)

    ours = served.store.message(place.log_offset)
    assert ours is not None
    assert (ours.topic, ours.queue_id, ours.reconsume_times) == (theirs.topic, theirs.queue_id, theirs.reconsume_times)
    assert ours.properties == theirs.properties


def test_retries_are_counted_for_group_and_topic() -> None:
    broker = Served()

    broker.send_back(broker.send(topic="T").log_offset)

    assert broker.stats.sent_back("G", "T").count == 1

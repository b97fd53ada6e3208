"""Records of a batch equal those of its messages one by one, with any content."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store.kit import HOST, ROOT
from tests.store.open_store import OpenStore

from pocketmq.codes import SysFlag
from pocketmq.errors import InvalidMessage, PocketMQError, StoreError, StoreFull
from pocketmq.model.names import SCHEDULE_TOPIC
from pocketmq.protocol.batch import BatchItem

V6_HOST = HOST + bytes(12)
SUFFIX = b"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02"

BODIES = st.one_of(st.binary(max_size=40), st.integers(0, 1000).map(bytes))
PROPERTIES = st.one_of(
    st.lists(
        st.sampled_from(
            [
                *(
                    b"TAGS\x01A",
                    b"TAGS\x01Blue",
                    b"TAGS\x01",
                    b"XTAGS\x01A",
                    b"TAGS\x01A\x02TAGS\x01B",
                    b"TAGS\x01A\x01",
                ),
                *(b"UNIQ_KEY\x017F00000100012A139A5514E1B2C300A1", b"k\x01v", b"DELAY\x013", b"z\x01a\0b", b"z\x01\0"),
            ]
        ),
        max_size=4,
    ).flatmap(lambda parts: st.sampled_from([b"\x02".join(parts), b"".join(part + b"\x02" for part in parts)])),
    st.binary(max_size=60),
)
ITEMS = st.lists(st.tuples(st.sampled_from([0, 1, -1, 2**31 - 1]), BODIES, PROPERTIES), max_size=12)


class Twins:
    """Two stores: one stores a batch at once, the other its messages one by one."""

    def __init__(self, **changes: Any) -> None:
        self.at_once, self.one_by_one = (OpenStore.small(**changes) for _ in range(2))
        self.taken: list[Callable[[], object]] = []
        for opened in (self.at_once, self.one_by_one):
            opened.send(b"first", topic="Before")  # with it the log has a file
            opened.run_workers()

    def take(
        self,
        items: list[BatchItem],
        sys_flag: int = 0,
        born_ms: int = 5,
        born_host: bytes = HOST,
        topic: str = "T",
    ) -> list[object]:
        """Both store the batch; returns their answer, which is the same."""
        queues = [opened.queue(topic) for opened in (self.at_once, self.one_by_one)]
        first = queues[1].next_offset
        stage = self.one_by_one.store.stage

        def many() -> object:
            return self.at_once.store.stage_batch(queues[0], items, sys_flag, born_ms, born_host)

        def each() -> object:
            places = [
                stage(queues[1], body, properties, flag, sys_flag, born_ms, born_host)
                for flag, body, properties in items
            ]
            return (places[0][0] if places else first), [log_offset for _, log_offset in places]

        told = [outcome(many), outcome(each)]
        assert told[0] == told[1]
        if isinstance(told[0], Refusal):  # a batch is taken whole or not at all
            self.one_by_one.store.abandon_turn()
            for take in self.taken:
                take()
        else:
            self.taken.append(each)
        assert queues[0].next_offset == queues[1].next_offset
        assert self.at_once.store.last_staged == self.one_by_one.store.last_staged
        return told

    def end(self) -> None:
        self.taken.clear()
        for opened in (self.at_once, self.one_by_one):
            opened.store.end_turn()
            opened.run_workers()
        self.compare()

    def compare(self) -> None:
        assert content(self.at_once) == content(self.one_by_one)


class Refusal(NamedTuple):
    kind: type[PocketMQError]
    text: str


def outcome(take: Callable[[], object]) -> object:
    try:
        return take()
    except PocketMQError as error:
        return Refusal(type(error), str(error))


def with_suffix(items: list[BatchItem], suffix: bytes) -> list[BatchItem]:
    return [(flag, body, properties + suffix) for flag, body, properties in items]


def content(opened: OpenStore) -> object:
    """Everything visible of a store: its log, its queues, its arrivals."""
    log = {name: opened.disk.read(ROOT / "commitlog" / name) for name in opened.names("commitlog")}
    queues = {
        queue.key: (queue.min_offset, queue.max_offset, queue.next_offset, list(queue.entries(0, 1000)))
        for queue in opened.store._queues
    }
    arrived = [(queue.key, *rest) for queue, *rest in opened.arrived]
    return log, queues, arrived, opened.store.end, opened.store._parts.last_record


@settings(max_examples=150)
@given(
    st.lists(ITEMS, min_size=1, max_size=3),
    st.sampled_from([SUFFIX, b"", b"k\x01v", b"TAGS\x01late\x02", b"z\x01\0\x02"]),
    st.sampled_from([0, SysFlag.COMPRESSED, SysFlag.TRANSACTION_PREPARED, SysFlag.BORN_HOST_V6, 0x7FFFFFFF]),
    st.sampled_from([0, 1_700_000_000_000, -1, 2**63]),
    st.sampled_from([HOST, V6_HOST]),
    st.sampled_from(["T", "%RETRY%" + "g" * 140, SCHEDULE_TOPIC]),
)
def test_a_batch_is_stored_like_single_messages(
    batches: list[list[BatchItem]], suffix: bytes, sys_flag: int, born_ms: int, born_host: bytes, topic: str
) -> None:
    twins = Twins(max_message_bytes=900)

    for items in batches:
        twins.take(with_suffix(items, suffix), sys_flag, born_ms, born_host, topic)

    twins.end()


@pytest.mark.parametrize(
    ("properties", "suffix"),
    [
        ((b"TAGS\x01A\x02", b"TAGS\x01B\x02", b"", b"TAGS\x01B\x02", b"TAGS\x01B"), SUFFIX),
        ((b"XTAGS\x01A\x02", b"TAGS\x01A\x02", b"XTAGS\x01A\x02", b"A\x02"), SUFFIX),
        ((b"TAGS\x01A\x02", b"TAGS\x01B\x02"), b"TAGS\x01late\x02"),
        ((b"a\x01b", b""), b""),
        ((b"a\x01b\x02", b"z\x01" + bytes(600) + b"\x02"), b""),
        ((b"a\x01b\x02", b""), b"z\x01\0"),
        ((b"a\x01b\x02", b"x" * 32_768), b""),
        ((b"a\x01b\x02", b"x" * 32_760), SUFFIX),
    ],
)
def test_properties_of_all_kinds_are_handled_equally(properties: tuple[bytes, ...], suffix: bytes) -> None:
    twins = Twins(log_file_bytes=128 * 1024)

    twins.take([(0, b"body", text + suffix) for text in properties])

    twins.end()


@pytest.mark.parametrize("sys_flag", [0, SysFlag.TRANSACTION_PREPARED, SysFlag.STORE_HOST_V6 | SysFlag.COMPRESSED])
@pytest.mark.parametrize("topic", ["T", SCHEDULE_TOPIC, "%RETRY%" + "g" * 140])
@pytest.mark.parametrize("born_host", [HOST, V6_HOST])
@pytest.mark.parametrize("number", [7, 2**31])
def test_requests_of_all_kinds_are_handled_equally(sys_flag: int, topic: str, born_host: bytes, number: int) -> None:
    twins = Twins()

    twins.take(
        [(0, b"a", b"DELAY\x013\x02TAGS\x01A\x02"), (number, b"b", b"")],
        sys_flag=sys_flag,
        born_host=born_host,
        topic=topic,
    )
    twins.take([(0, b"a", b"")], sys_flag=sys_flag, born_ms=number << 32, born_host=born_host, topic=topic)

    twins.end()


def test_a_batch_continues_in_the_next_file() -> None:
    twins = Twins()

    for _ in range(3):
        twins.take([(0, bytes([number]) * 700, b"TAGS\x01t\x02") for number in range(9)])
    twins.end()

    assert len(twins.at_once.bodies()) == 27
    assert twins.at_once.store.end > 4 * 4096


def test_batches_and_single_messages_share_a_turn() -> None:
    opened = OpenStore.small()

    opened.stage(b"0")
    opened.store.stage_batch(opened.queue(), [(0, b"1", b""), (0, b"2", b"")], 0, 0, HOST)
    opened.store.stage_batch(opened.queue("U"), [(0, b"u", b"")], 0, 0, HOST)
    assert opened.stage(b"3")[0] == 3
    opened.store.end_turn()

    assert opened.bodies() == [b"0", b"1", b"2", b"3"]
    assert opened.bodies("U") == [b"u"]


def test_a_batch_across_files_shares_a_turn() -> None:
    opened = OpenStore.small()
    opened.stage(b"before")

    first, _ = opened.store.stage_batch(opened.queue(), [(0, bytes(700), b"")] * 9, 0, 0, HOST)
    assert opened.stage(b"behind")[0] == 10
    opened.store.end_turn()
    opened.run_workers()

    assert first == 1
    assert len(opened.bodies()) == 11


@pytest.mark.parametrize("size", [10, 700])
def test_a_failed_batch_is_rolled_back_and_the_rest_of_its_turn_stays(size: int) -> None:
    opened = OpenStore.small(max_message_bytes=800)
    opened.stage(b"before")
    end = opened.store._log.end

    with pytest.raises(InvalidMessage, match="max_message_bytes = 800"):
        opened.store.stage_batch(opened.queue(), [*[(0, bytes(size), b"")] * 9, (0, bytes(801), b"")], 0, 0, HOST)

    assert (opened.store._log.end, opened.store.last_staged, opened.queue().next_offset) == (end, 0, 1)
    opened.stage(b"behind")
    opened.store.end_turn()
    opened.run_workers()
    assert opened.bodies() == opened.crash().bodies() == [b"before", b"behind"]


def test_an_empty_batch_starts_no_turn() -> None:
    opened = OpenStore.small()
    opened.send(b"one")
    before = opened.disk.position

    assert opened.store.stage_batch(opened.queue(), [], 0, 0, HOST) == (1, [])
    opened.store.end_turn()

    assert opened.disk.position == before


def test_an_abandoned_batch_has_no_effect() -> None:
    twins = Twins()
    twins.take([(0, b"kept", b"")])
    twins.end()

    twins.take([(0, bytes(3000), b"")] * 4)
    for opened in (twins.at_once, twins.one_by_one):
        opened.store.abandon_turn()
    twins.take([(0, b"next", b"")])
    twins.end()

    assert twins.at_once.bodies() == [b"kept", b"next"]


def test_a_batch_that_cannot_be_written_has_no_effect() -> None:
    opened = OpenStore.small()
    opened.disk.fail("write", path="*/commitlog/*")
    opened.store.stage_batch(opened.queue(), [(0, b"a", b""), (0, b"b", b"")], 0, 0, HOST)

    with pytest.raises(StoreError):
        opened.store.end_turn()
    opened.tick()

    assert opened.queue().next_offset == 0
    opened.send(b"next")
    assert opened.crash().bodies() == [b"next"]


def test_batches_go_through_the_transient_pool() -> None:
    twins = Twins(transient_pool=True)

    for _ in range(6):
        twins.take([(0, bytes(200), b"TAGS\x01t\x02")] * 4)
        twins.end()

    assert len(twins.at_once.bodies()) == 24


def test_a_full_disk_refuses_a_batch() -> None:
    opened = OpenStore.small()
    opened.store._parts.disk_full = True

    with pytest.raises(StoreFull):
        opened.store.stage_batch(opened.queue(), [(0, b"a", b"")], 0, 0, HOST)

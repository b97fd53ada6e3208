"""Transactions as the rest of the broker and its administrators see them."""

import errno
from functools import partial
from pathlib import Path

import pytest
from tests.broker.transactions.kit import COMMIT, GROUP, Lab, Producer
from tests.golden import needs_golden
from tests.net.talk import SERVER, Recorder, frame_of
from tests.store.golden_store import STORES, restore
from tests.store.test_golden_stores import GoldenStore

from pocketmq.broker.groups.consumer_group import ClientInfo
from pocketmq.broker.groups.members import Producers
from pocketmq.broker.groups.offsets import OffsetTable
from pocketmq.broker.handlers.transactions import MAX_UNSENT_BYTES, producer_finder
from pocketmq.broker.settings import BrokerSettings
from pocketmq.broker.state import BrokerState
from pocketmq.broker.transactions.transactions import Transactions
from pocketmq.errors import ImpossibleRequest
from pocketmq.model.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from pocketmq.net.peer import Peer
from pocketmq.protocol.api.messages import EndTransaction
from pocketmq.protocol.bodies.topics import ConsumerOffsets
from pocketmq.protocol.record import decode_record
from pocketmq.testing import FakeClock, MemoryNetwork, run

SOON_AFTER_MS = 1_794_740_000_000
"""An hour or two after the stores of Apache were captured."""


def given_up(lab: Lab, body: bytes = b"body") -> str:
    """A given up transaction; returns its offset id."""
    lab.send(body)
    lab.with_transaction(max_checks=1)
    lab.check()
    lab.check()
    return lab.messages(CHECK_MAX_TIME_TOPIC, 0)[-1].offset_id


def test_the_list_of_undecided_transactions_has_a_limit() -> None:
    lab = Lab.new()
    for number in range(5):
        lab.send(str(number).encode())
    lab.check()

    assert [one.transaction_id for one in lab.transactions.undecided(2)] == ["KEY-0", "KEY-1"]
    assert {(one.topic, one.producer_group, one.checks) for one in lab.transactions.undecided(100)} == {("T", GROUP, 1)}


def test_stopping_records_decisions_and_never_fails(caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab.new()
    lab.end(lab.send(b"one"))
    lab.opened.disk.fail("write", errno.ENOSPC, "*/commitlog/*")

    lab.transactions.ledger.try_write_ops()
    assert "Cannot write op messages of 1 decided transactions" in caplog.text
    lab.opened.tick(1000)
    lab.transactions.ledger.try_write_ops()

    assert [op.body for op in lab.messages(OP_HALF_TOPIC, 0)] == [b"0,"]


@pytest.mark.parametrize("by_key", [True, False])
def test_a_given_up_transaction_can_be_resumed(by_key: bool) -> None:
    lab = Lab.new()
    offset_id = given_up(lab)

    lab.transactions.resume("KEY-body" if by_key else offset_id)

    (one,) = lab.transactions.undecided(10)
    assert (one.transaction_id, one.checks) == ("KEY-body", 0)
    (copy,) = lab.check()
    lab.end(copy, check=True)
    assert lab.delivered() == [b"body"]


def test_a_transaction_can_be_resumed_each_time_it_was_given_up() -> None:
    lab = Lab.new()
    lab.transactions.resume(given_up(lab))

    with pytest.raises(ImpossibleRequest, match="was resumed before"):
        lab.transactions.resume("KEY-body")
    lab.check()
    lab.check()
    lab.transactions.resume("KEY-body")

    assert len(lab.transactions.undecided(10)) == 1


@pytest.mark.parametrize("message_id", ["", "no such id", "0" * 32, "F" * 32, "7F00000100002A9F0000000000000003"])
def test_only_a_given_up_transaction_can_be_resumed(message_id: str) -> None:
    lab = Lab.new()
    given_up(lab)

    with pytest.raises(ImpossibleRequest, match="there is no message"):
        lab.transactions.resume(message_id)


def test_an_open_transaction_cannot_be_resumed() -> None:
    lab = Lab.new()
    half = lab.message(lab.send())

    with pytest.raises(ImpossibleRequest, match="there is no message"):
        lab.transactions.resume(half.offset_id)


def test_half_and_op_topics_can_be_read_like_any_other() -> None:
    lab = Lab.new()
    lab.send()

    result = lab.store.read(HALF_TOPIC, 0, 0, 32)

    assert decode_record(result.body()).properties["REAL_TOPIC"] == "T"
    assert HALF_TOPIC in lab.topics
    assert OP_HALF_TOPIC in lab.topics


def test_a_half_message_in_the_transient_pool_is_reported_as_pending() -> None:
    lab = Lab.new(transient_pool=True, pool_buffers=4, pool_buffer_bytes=64 * 1024)
    place = lab.send()
    decision = EndTransaction(GROUP, place.queue_offset, place.log_offset, int(COMMIT), "")

    assert lab.transactions.is_unreadable_yet(decision)
    lab.opened.tick(1000)

    assert not lab.transactions.is_unreadable_yet(decision)
    lab.transactions.decisions.end(decision)
    assert lab.transactions.undecided(10) == []


def test_producers_that_can_accept_checks_take_turns() -> None:
    async def main() -> None:
        network, peers = MemoryNetwork(), [Peer(), Peer()]
        await network.listen(lambda: Recorder().connection, SERVER)
        producers = Producers()
        for peer in peers:
            await network.connect(partial(getattr, peer, "connection"), SERVER)
            producers.join(GROUP, ClientInfo(peer, "id", str(peer.address), "JAVA", 0), 0.0, 0)
        find = producer_finder(producers)

        in_turn = [find(GROUP, "T") for _ in range(3)]
        only_the_second = producer_finder(producers, lambda peer, topic: topic == "T" and peer is peers[1])
        allowed = [only_the_second(GROUP, "T"), only_the_second(GROUP, "T"), only_the_second(GROUP, "U")]
        peers[0].connection.write(frame_of(body=bytes(MAX_UNSENT_BYTES)))
        while_one_is_full = [find(GROUP, "T") for _ in range(2)]
        for peer in peers:
            peer.close()

        assert in_turn == [peers[0], peers[1], peers[0]]
        assert allowed == [peers[1], peers[1], None]
        assert while_one_is_full == [peers[1], peers[1]]
        assert (find(GROUP, "T"), find("Nobody", "T")) == (None, None)
        for peer in peers:
            await peer.wait_lost()

    run(main())


@needs_golden
@pytest.mark.parametrize(("version", "kind"), STORES)
def test_transactions_of_an_apache_store_are_continued(version: str, kind: str, tmp_path: Path) -> None:
    golden = GoldenStore(restore(version, kind, tmp_path), FakeClock(start_ms=SOON_AFTER_MS))
    offsets = OffsetTable()
    offsets.restore(ConsumerOffsets.decode((tmp_path / "config" / "consumerOffset.json").read_bytes()))
    state = BrokerState(BrokerSettings(), golden.clock, lambda **_: golden.store)
    state.offsets = offsets
    producer = Producer()
    transactions = Transactions(state, lambda _group, _topic: producer, lambda: None)

    transactions.load()
    before = transactions.undecided(100)
    run(transactions.checks.run())

    assert {one.producer_group for one in before} <= {"PG_store_transaction"}
    asked = [header.transaction_id for header, _ in producer.take()]
    assert asked == [one.transaction_id for one in before]
    assert len(transactions.undecided(100)) == len(before)

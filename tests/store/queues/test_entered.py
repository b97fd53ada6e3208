"""Queue entries of a turn: all entered, or all withdrawn, in any pieces."""

from pathlib import Path

from pocketmq.store.log.segments import OpenFiles
from pocketmq.store.queues.consume_queue import ENTRY, ConsumeQueue, arrivals_of, give_back, newest_log_offset
from pocketmq.store.queues.queues import Queues
from pocketmq.store.settings import StoreSettings
from pocketmq.testing import FaultyFiles


def new_queue(queue_id: int) -> ConsumeQueue:
    return ConsumeQueue("T", queue_id, Path("/q"), OpenFiles(FaultyFiles(), 4), 100)


def entries(*log_offsets: int) -> bytes:
    return b"".join(ENTRY.pack(log_offset, 100, 7) for log_offset in log_offsets)


def test_pieces_are_appended_to_their_queues_in_order() -> None:
    one, other = new_queue(1), new_queue(2)

    queues = Queues(StoreSettings(folder=Path("/store")), FaultyFiles())
    touched, count = queues.enter_all([(one, entries(0)), (other, entries(100, 200)), (one, entries(300))])

    assert (list(touched), count) == ([one, other], 4)
    assert (one.max_offset, other.max_offset) == (2, 2)
    assert bytes(one.pending) == entries(0, 300)
    assert bytes(other.pending) == entries(100, 200)
    assert queues.dirty() == [one, other]


def test_withdrawn_offsets_are_free_again() -> None:
    one, other = new_queue(1), new_queue(2)
    one.next_offset, other.next_offset = 5, 3

    give_back([(one, entries(0)), (other, entries(100, 200)), (one, entries(300))])

    assert (one.next_offset, other.next_offset) == (3, 1)


def test_every_message_of_every_piece_is_in_its_queue() -> None:
    one, other = new_queue(1), new_queue(2)

    arrived = list(arrivals_of([(one, entries(0)), (other, entries(100, 200))]))

    assert arrived == [(one, 0, 100, 7), (other, 100, 100, 7), (other, 200, 100, 7)]
    assert newest_log_offset([(one, entries(100, 200))]) == 200
    assert newest_log_offset([(one, entries(100, 300)), (other, entries(200))]) == 300

"""Waiting requests: how long, how many, and the answers of refused ones."""

from typing import cast, get_args

import pytest

from pocketmq.broker.requests.flow import RETRY_AFTER_MS, Cause, Kind, LogGate, WaitingRequest, WaitingRequests, kind_of
from pocketmq.broker.settings import FlowSettings
from pocketmq.codes import RequestCode
from pocketmq.errors import StoreBusy, SystemBusy
from pocketmq.model.retries import retry_after_ms
from pocketmq.net.peer import Peer
from pocketmq.protocol.command import Command
from pocketmq.protocol.hot_headers import Head

HEADS = get_args(Head)

PEER = Peer()


def request(since: float = 0.0, size: int = 10, peer: Peer = PEER) -> WaitingRequest:
    return WaitingRequest(peer, None, (0, b"h" * size, b""), since)


def waiting(**settings: int) -> WaitingRequests:
    return WaitingRequests(FlowSettings(**settings))


def test_requests_of_a_class_are_served_in_the_order_of_arrival() -> None:
    queue = waiting()
    first, second = request(1.0), request(2.0)

    queue.put(Kind.SEND, first, "busy")
    queue.put(Kind.SEND, second, "busy")

    assert [queue.pop(Kind.SEND), queue.pop(Kind.SEND), queue.pop(Kind.SEND)] == [first, second, None]


def test_a_send_that_waited_elsewhere_is_served_before_later_ones() -> None:
    queue = waiting()
    later = request(3.0)
    queue.put(Kind.SEND, later, "busy")
    first, second = request(1.0), request(1.0)

    queue.put(Kind.SEND, first, "the name servers know its topic by now, but the log is busy")
    queue.put(Kind.SEND, second, "the same")

    assert [queue.pop(Kind.SEND), queue.pop(Kind.SEND), queue.pop(Kind.SEND)] == [first, second, later]


def test_a_returned_request_is_served_next() -> None:
    queue = waiting()
    first, second = request(1.0), request(2.0)
    queue.put(Kind.SEND, first, "busy")
    queue.put(Kind.SEND, second, "busy")

    taken = queue.pop(Kind.SEND)
    assert taken is not None
    queue.put_first(Kind.SEND, taken)

    assert queue.pop(Kind.SEND) is first


@pytest.mark.parametrize(
    ("kind", "limit_ms"), [(Kind.SEND, 200), (Kind.TRANSACTION, 3_000), (Kind.PULL, 5_000), (Kind.HEARTBEAT, 31_000)]
)
def test_each_class_has_its_own_time_limit(kind: Kind, limit_ms: int) -> None:
    queue = waiting()
    queue.put(kind, request(since=1.0), "busy")

    assert not list(queue.pop_expired(1.0 + limit_ms / 1000, "busy"))
    ((_, refusal),) = queue.pop_expired(1.0 + limit_ms / 1000 + 0.002, "busy")

    assert refusal.code == 2
    assert not len(queue)


def test_a_refusal_has_rocketmqs_words_the_cause_and_the_retry_time() -> None:
    queue = waiting()
    queue.put(Kind.SEND, request(since=1.0), "the disk is slow")
    queue.put(Kind.SEND, request(since=1.3), "the disk is slow")

    ((_, refusal),) = queue.pop_expired(1.25, "the disk is slow")

    assert refusal.remark == (
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 250ms, size of queue: 2, "
        "cause: the disk is slow, retry after: 100ms"
    )


def test_a_request_above_the_limit_is_refused_at_once_and_counted() -> None:
    queue = waiting(max_waiting_sends=1)
    queue.put(Kind.SEND, request(), "busy")

    with pytest.raises(SystemBusy, match=r"\[OVERLOAD\]system busy.* 1 requests and 10 bytes are waiting: busy"):
        queue.put(Kind.SEND, request(), "busy")

    assert queue.count(Kind.SEND) == 1
    assert queue.refused == {(Kind.SEND, Cause.OVERLOAD): 1}


def test_all_classes_share_one_byte_limit_and_release_their_bytes() -> None:
    queue = waiting(max_waiting_bytes=100)
    queue.put(Kind.SEND, request(size=90), "busy")

    with pytest.raises(SystemBusy, match="OVERLOAD"):
        queue.put(Kind.PULL, request(size=11), "busy")
    queue.pop(Kind.SEND)
    queue.put(Kind.PULL, request(size=100), "busy")

    assert queue.count(Kind.PULL) == 1


def test_pulls_of_a_lost_connection_are_removed_but_its_sends_are_not() -> None:
    queue = waiting(max_waiting_bytes=30)
    gone, other = Peer(), Peer()
    queue.put(Kind.PULL, request(peer=gone), "busy")
    queue.put(Kind.PULL, request(peer=other), "busy")
    queue.put(Kind.SEND, request(peer=gone), "busy")

    queue.forget(gone)

    assert (queue.count(Kind.PULL), queue.count(Kind.SEND)) == (1, 1)
    queue.put(Kind.PULL, request(), "busy")


def test_all_requests_of_a_class_can_be_refused_together() -> None:
    queue = waiting()
    for _ in range(3):
        queue.put(Kind.SEND, request(), "busy")
    queue.put(Kind.PULL, request(), "busy")

    refused = list(queue.pop_all(Kind.SEND, Cause.LOG_BUSY, 0.05, "the disk stands still"))

    assert [refusal.remark[:20] for _, refusal in refused if refusal.remark] == ["[PCBUSY_CLEAN_QUEUE]"] * 3
    assert len(queue) == 1
    assert queue.refused == {(Kind.SEND, Cause.LOG_BUSY): 3}


def test_sends_are_rejected_after_the_log_was_busy_for_a_second() -> None:
    gate = LogGate(FlowSettings())

    gate.refused(StoreBusy("no room"), 10.0)
    assert not gate.is_open
    assert not gate.is_shut(11.0)
    gate.refused(StoreBusy("still no room"), 11.0)

    assert gate.is_shut(11.005)
    assert gate.busy_ms(11.005) == 1005
    assert gate.why == "still no room"


def test_a_log_that_accepts_writes_ends_the_rejection() -> None:
    gate = LogGate(FlowSettings())
    gate.refused(StoreBusy("no room"), 10.0)

    gate.accepted()

    assert gate.is_open
    assert not gate.is_shut(12.0)
    assert gate.busy_ms(12.0) == 0
    assert gate.why == ""


def test_the_busy_time_restarts_after_a_successful_write() -> None:
    gate = LogGate(FlowSettings())
    gate.refused(StoreBusy("no room"), 10.0)
    gate.accepted()

    gate.refused(StoreBusy("no room"), 12.0)

    assert not gate.is_shut(12.5)
    assert gate.busy_ms(12.5) == 500


@pytest.mark.parametrize("cause", Cause)
def test_every_refusal_has_a_retry_time_that_our_client_reads(cause: Cause) -> None:
    refusal = waiting().refusal(Kind.SEND, cause, "the disk is slow", 250, 7)

    assert retry_after_ms(refusal.remark) == RETRY_AFTER_MS[cause]


def test_a_connection_without_waiting_requests_is_removed_completely() -> None:
    queue = waiting()
    queue.put(Kind.PULL, request(), "busy")

    queue.forget(Peer())

    assert queue.count(Kind.PULL) == 1


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (RequestCode.SEND_MESSAGE, Kind.SEND),
        (RequestCode.SEND_BATCH_MESSAGE, Kind.SEND),
        (RequestCode.CONSUMER_SEND_MSG_BACK, Kind.SEND),
        (RequestCode.SEND_REPLY_MESSAGE_V2, Kind.SEND),
        (RequestCode.END_TRANSACTION, Kind.TRANSACTION),
        (RequestCode.HEART_BEAT, Kind.HEARTBEAT),
        (RequestCode.PULL_MESSAGE, Kind.PULL),
        (RequestCode.UPDATE_CONSUMER_OFFSET, Kind.PULL),
        (RequestCode.GET_BROKER_CONFIG, Kind.PULL),
        (9999, Kind.PULL),
    ],
)
def test_the_code_of_a_request_decides_its_class(code: int, kind: Kind) -> None:
    assert kind_of(Command(code)) is kind
    assert all(kind_of(cast("Head", head)) is kind for head in HEADS if head.code == code)

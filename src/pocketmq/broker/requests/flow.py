"""Flow control: requests that cannot be served at once, how long they may wait, and how they are rejected.

    a turn over its budget ─────┐
    a send, and the log cannot ─┼─► queue of its class ── checked every 10 ms ─┬─ can be served ──► served
    accept it now               │    send 200 ms · pull 5 s · pop, ack 3 s     └─ waited too long ─► [TIMEOUT_CLEAN_QUEUE]
                                │    heartbeat 31 s · transaction 3 s
                                └─ the queue is full ───────────────────────────────────────────► [OVERLOAD]
    the log has accepted nothing for 1 s, or its pool is empty ── new sends ────────────────────► [REJECTREQUEST]
                                                                └ waiting sends ────────────────► [PCBUSY_CLEAN_QUEUE]

The words in brackets are RocketMQ's; clients recognize them. The measured cause and a retry delay follow them.
Nothing here serves a request or reads a clock: callers pass the monotonic time.
"""

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import islice, takewhile
from typing import Any, NamedTuple

from pocketmq.broker.settings import FlowSettings
from pocketmq.codes import RequestCode
from pocketmq.errors import PoolEmpty, StoreBusy, SystemBusy
from pocketmq.net import Peer
from pocketmq.protocol.command import Command
from pocketmq.protocol.frames import Frame
from pocketmq.protocol.hot_headers import Head


class Kind(Enum):
    """Classes of requests, each with its own queue."""

    HEARTBEAT = "heartbeat"
    TRANSACTION = "transaction"
    SEND = "send"
    LEASE = "lease"
    PULL = "pull"


MAX_RUN = 64
"""Limit on waiting requests that are served together."""
STORING = frozenset({Kind.SEND, Kind.TRANSACTION, Kind.LEASE})
"""Classes that store something: they wait while the log is busy."""

_KINDS: dict[int, Kind] = {
    RequestCode.SEND_MESSAGE: Kind.SEND,
    RequestCode.SEND_MESSAGE_V2: Kind.SEND,
    RequestCode.SEND_BATCH_MESSAGE: Kind.SEND,
    RequestCode.SEND_REPLY_MESSAGE: Kind.SEND,
    RequestCode.SEND_REPLY_MESSAGE_V2: Kind.SEND,
    RequestCode.CONSUMER_SEND_MSG_BACK: Kind.SEND,
    RequestCode.RECALL_MESSAGE: Kind.SEND,
    RequestCode.END_TRANSACTION: Kind.TRANSACTION,
    RequestCode.POP_MESSAGE: Kind.LEASE,
    RequestCode.ACK_MESSAGE: Kind.LEASE,
    RequestCode.BATCH_ACK_MESSAGE: Kind.LEASE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: Kind.LEASE,
    RequestCode.HEART_BEAT: Kind.HEARTBEAT,
    RequestCode.UNREGISTER_CLIENT: Kind.HEARTBEAT,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: Kind.HEARTBEAT,
}


def may_pass(error: StoreBusy) -> bool:
    """Whether waiting helps. An empty pool does not: waiting requests would fill it again at once."""
    return not isinstance(error, PoolEmpty)


def kind_of(head: Head | Command) -> Kind:
    """The class of a request. Requests that are not listed above may wait as long as pulls."""
    return _KINDS.get(head.code, Kind.PULL)


class Cause(Enum):
    TIMEOUT = "[TIMEOUT_CLEAN_QUEUE]broker busy"
    LOG_BUSY = "[PCBUSY_CLEAN_QUEUE]broker busy"
    REJECTED = "[REJECTREQUEST]system busy"
    OVERLOAD = "[OVERLOAD]system busy"


class WaitingRequest(NamedTuple):
    """A request that waits. The type of `head`, its decoded header, depends on its class."""

    peer: Peer
    head: Any
    frame: Frame
    since: float

    @property
    def size(self) -> int:
        return len(self.frame[1]) + len(self.frame[2])


RETRY_AFTER_MS = {Cause.TIMEOUT: 100, Cause.LOG_BUSY: 500, Cause.REJECTED: 500, Cause.OVERLOAD: 100}
"""When a rejected client should retry."""


class WaitingRequests:
    """Waiting requests by class, oldest first. `refused` counts rejections by class and cause."""

    def __init__(self, settings: FlowSettings) -> None:
        self.apply(settings)
        self._queues: dict[Kind, deque[WaitingRequest]] = {kind: deque() for kind in Kind}
        self._bytes = 0
        self.refused: Counter[tuple[Kind, Cause]] = Counter()

    def apply(self, settings: FlowSettings) -> None:
        self._limits_s = {
            Kind.SEND: settings.send_wait_ms / 1000,
            Kind.PULL: settings.pull_wait_ms / 1000,
            Kind.HEARTBEAT: settings.heartbeat_wait_ms / 1000,
            Kind.TRANSACTION: settings.transaction_wait_ms / 1000,
            Kind.LEASE: settings.lease_wait_ms / 1000,
        }
        self._max_waiting = {
            Kind.SEND: settings.max_waiting_sends,
            Kind.PULL: settings.max_waiting_pulls,
            Kind.HEARTBEAT: settings.max_waiting_heartbeats,
            Kind.TRANSACTION: settings.max_waiting_transactions,
            Kind.LEASE: settings.max_waiting_leases,
        }
        self.max_bytes = settings.max_waiting_bytes

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def count(self, kind: Kind) -> int:
        return len(self._queues[kind])

    def first(self, kind: Kind) -> WaitingRequest | None:
        queue = self._queues[kind]
        return queue[0] if queue else None

    def head_wait_ms(self, kind: Kind, now: float) -> int:
        """How long the oldest request of a class has waited; 0 if there is none."""
        queue = self._queues[kind]
        return int((now - queue[0].since) * 1000) if queue else 0

    def put(self, kind: Kind, request: WaitingRequest, why: str) -> None:
        """Add a request. SystemBusy if too many wait."""
        queue = self._queues[kind]
        if len(queue) >= self._max_waiting[kind] or self._bytes + request.size > self.max_bytes:
            raise self.refusal(
                kind, Cause.OVERLOAD, f"{len(queue)} requests and {self._bytes} bytes are waiting: {why}"
            )
        if queue and queue[-1].since > request.since:  # a send to a new topic waited for the name servers first
            queue.insert(bisect_right(queue, request.since, key=lambda other: other.since), request)
        else:
            queue.append(request)
        self._bytes += request.size

    def put_first(self, kind: Kind, request: WaitingRequest) -> None:
        """Return a request to the front of its queue because it could not be served."""
        self._queues[kind].appendleft(request)
        self._bytes += request.size

    def pop(self, kind: Kind) -> WaitingRequest | None:
        queue = self._queues[kind]
        if not queue:
            return None
        request = queue.popleft()
        self._bytes -= request.size
        return request

    def serve_run(self, kind: Kind, serve: Callable[[Peer, list[Frame], int], int]) -> int:
        """Serve the oldest request together with those of the same connection that follow it, and remove them. `serve`
        gets their frames, and returns how many it served from the first on. 0: serve the oldest one by itself.
        """
        queue = self._queues[kind]
        if len(queue) < 2 or queue[0].peer is not queue[1].peer or queue[0].peer.connection.should_pause:
            return 0
        peer = queue[0].peer
        same = takewhile(lambda request: request.peer is peer, islice(queue, MAX_RUN))
        count = serve(peer, [request.frame for request in same], 0)
        for _ in range(count):
            self.pop(kind)
        return count

    def pop_expired(self, now: float, why: str) -> Iterator[tuple[WaitingRequest, SystemBusy]]:
        """Remove requests that waited longer than their class allows, each with its rejection."""
        for kind, queue in self._queues.items():
            limit_s = self._limits_s[kind]
            while queue and now - queue[0].since > limit_s:
                waited, size = self.head_wait_ms(kind, now), len(queue)
                request = self.pop(kind)
                assert request is not None
                yield request, self.refusal(kind, Cause.TIMEOUT, why, waited, size)

    def pop_all(self, kind: Kind, cause: Cause, now: float, why: str) -> Iterator[tuple[WaitingRequest, SystemBusy]]:
        """Remove all requests of a class, each with its rejection."""
        while (size := self.count(kind)) > 0:
            waited = self.head_wait_ms(kind, now)
            request = self.pop(kind)
            assert request is not None
            yield request, self.refusal(kind, cause, why, waited, size)

    def forget(self, peer: Peer) -> None:
        """Drop requests of a lost connection. Sends stay: they are accepted, and one-way sends expect no answer."""
        for kind in (Kind.PULL, Kind.HEARTBEAT):
            queue = self._queues[kind]
            if any(request.peer is peer for request in queue):
                self._bytes -= sum(request.size for request in queue if request.peer is peer)
                self._queues[kind] = deque(request for request in queue if request.peer is not peer)

    def refusal(
        self, kind: Kind, cause: Cause, why: str, waited_ms: int | None = None, queue_size: int | None = None
    ) -> SystemBusy:
        """The rejection of a request; counted."""
        self.refused[kind, cause] += 1
        waited = "" if waited_ms is None else f", period in queue: {waited_ms}ms, size of queue: {queue_size}"
        return SystemBusy(
            f"{cause.value}, start flow control for a while{waited}, cause: {why}, retry after: {RETRY_AFTER_MS[cause]}ms"
        )


class LogGate:
    """Whether the log accepts writes, and since when it does not. Updated by writers and by every sweep."""

    def __init__(self, settings: FlowSettings) -> None:
        self.apply(settings)
        self._since: float | None = None
        self.why = ""

    def apply(self, settings: FlowSettings) -> None:
        self._busy_s = settings.page_cache_busy_ms / 1000

    @property
    def is_open(self) -> bool:
        return self._since is None

    def busy_ms(self, now: float) -> int:
        return 0 if self._since is None else int((now - self._since) * 1000)

    def is_shut(self, now: float) -> bool:
        """Whether sends are rejected without waiting."""
        return self._since is not None and now - self._since > self._busy_s

    def refused(self, error: StoreBusy, now: float) -> None:
        self.why = str(error)
        if self._since is None:
            self._since = now

    def accepted(self) -> None:
        self._since = None
        self.why = ""

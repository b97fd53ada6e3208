"""Check points and acks that wait in the timer, encoded and staged by the C twin.

    stage            a lease, or acknowledged offsets of one ──► its record in the store's turn
    stage_messages   messages of one queue, without a filter ──► the record of their check point, and the answer of the pop

Both return None if there is no twin, or if Python must encode the record: it is due at once or too late, its names are
unusual, or it does not fit into the log file. `journal` and `reading` then do the same in Python, to the byte.
"""

from collections.abc import Iterable
from typing import Final

from pocketmq import compiled
from pocketmq.broker.state import BrokerState
from pocketmq.errors import QueueDamaged
from pocketmq.model import TIMER_TOPIC, parse_topic
from pocketmq.protocol.hot_headers import POP_PARTS
from pocketmq.protocol.pop import Handle
from pocketmq.store.queues.consume_queue import ENTRY_BYTES, ConsumeQueue

_TIMERS: Final = parse_topic(TIMER_TOPIC)
_V4_BYTES: Final = 8

READ_AHEAD: Final = 256
MAX_AHEAD: Final = 1_000
"""Limit on groups and queues whose entries are kept, 5 KB each."""

_Layout = tuple[ConsumeQueue, tuple[int, ...], tuple[int, int, int, int, int], compiled.LeasePlan]


class LeaseRecords:
    """Stages records of leases. `topic` is the revive topic."""

    def __init__(self, state: BrokerState, topic: str, broker: str) -> None:
        self._state = state
        self._topic = topic
        self._broker = broker
        self._twin = compiled.twin()
        self._ahead: dict[tuple[str, ConsumeQueue], tuple[int, bytes]] = {}
        self.is_in_use = self._twin is not None

    def stage(
        self, is_ack: bool, group: str, topic: str, handle: Handle, offsets: Iterable[int], due_ms: int
    ) -> int | None:
        """The log offset of the record."""
        twin, layout = self._twin, self._layout(handle, due_ms)
        if twin is None or layout is None:
            return None
        timers, numbers, position, plan = layout
        made = twin.lay_out_lease(is_ack, group, topic, offsets, numbers, position, plan)
        if made is None:
            return None
        record, entry = made
        log_offset = position[3]
        self._state.store.stage_run(record, log_offset + len(record), ((timers, entry),))
        return log_offset

    def stage_messages(
        self,
        group: str,
        queue: ConsumeQueue,
        handle: Handle,
        max_count: int,
        answer: tuple[int, int, int, int],
        due_ms: int,
    ) -> tuple[int, compiled.LeasedMessages] | None:
        """The log offset of the check point, and what the twin returns. Stages nothing if there are fewer messages than
        `max_count` although the queue has more.
        """
        twin, store, layout = self._twin, self._state.store, self._layout(handle, due_ms)
        if twin is None or layout is None:
            return None
        timers, numbers, position, plan = layout
        try:
            entries = self._entries(group, queue, handle.start, max_count)
        except QueueDamaged:
            return None
        bounds = store.read_bounds(max_count)
        made = twin.lease_messages(
            group, queue.topic, entries, bounds, store.map_at, numbers, position, plan, answer, POP_PARTS
        )
        if made is None or made[0] < min(max_count, queue.max_offset - handle.start):
            return None
        record, entry, log_offset = made[2], made[3], position[3]
        store.stage_run(record, log_offset + len(record), ((timers, entry),))
        return log_offset, made

    def _entries(self, group: str, queue: ConsumeQueue, offset: int, count: int) -> bytes:
        """Entries of a queue, most of them read ahead by an earlier pop of the group."""
        first, ahead = self._ahead.get((group, queue), (0, b""))
        at = (offset - first) * ENTRY_BYTES
        needed = min(count, queue.max_offset - offset) * ENTRY_BYTES
        if at < 0 or at + needed > len(ahead):
            if len(self._ahead) >= MAX_AHEAD:
                self._ahead.clear()
            ahead, at = self._state.store.entry_reader(queue, None)(offset, count, READ_AHEAD), 0
            self._ahead[group, queue] = offset, ahead
        return ahead[at : at + needed]

    def _layout(self, handle: Handle, due_ms: int) -> _Layout | None:
        state, now_ms = self._state, self._state.clock.now_ms()
        store, timer = state.store, state.settings.now.timer
        if (
            not timer.enabled
            or state.appender.timers_full
            or not now_ms < due_ms <= now_ms + timer.max_delay_s * 1000
            or len(store.store_host) != _V4_BYTES
        ):
            return None
        timers = store.queue(_TIMERS, 0)
        store_ms, log_offset, limit = store.run_bounds()
        second_ms = (due_ms - 1) // timer.precision_ms * timer.precision_ms
        start, pop_ms, invisible_ms, revive_queue, _, _, queue_id, _ = handle
        return (
            timers,
            (queue_id, start, pop_ms, invisible_ms, revive_queue, due_ms, second_ms),
            (now_ms, store_ms, timers.next_offset, log_offset, limit),
            (self._broker, self._topic, timers.topic_field, timers.record_magic, store.store_host),
        )

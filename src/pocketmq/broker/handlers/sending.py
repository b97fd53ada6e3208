"""Sends: stages the messages of clients in the store's turn.

    a regular message ── known topic and queue ──► staged directly from its bytes
    anything else ───── checked in RocketMQ's order ──► a draft, rewritten ──► staged
                        new topic · queue chosen here · retry or dead letter · half message · delayed · timed · no unique key

Each message gets the properties region, trace switch and cluster. Known queues are cached until a topic or a setting
changes.
"""

import os
from typing import Final

from pocketmq import compiled
from pocketmq.broker.handlers.destinations import Destinations
from pocketmq.broker.handlers.recalling import recall_handle_for
from pocketmq.broker.handlers.retries import Retries
from pocketmq.broker.messages import Draft, packed_host
from pocketmq.broker.state import BrokerState
from pocketmq.broker.stats import Tally
from pocketmq.broker.transactions.half import as_half
from pocketmq.codes import SysFlag
from pocketmq.errors import (
    ImpossibleRequest,
    InvalidMessage,
    NoPermission,
    ProtocolError,
)
from pocketmq.model import UniqueIds, is_retry, pack_ip, parse_topic
from pocketmq.model import properties as names
from pocketmq.model.properties import parse_properties, raw_property
from pocketmq.net import Address, Peer
from pocketmq.protocol.api.messages import SendMessage
from pocketmq.protocol.batch import MAX_ITEMS, decode_batch
from pocketmq.protocol.command import Command, encode_command
from pocketmq.protocol.frames import Frame
from pocketmq.protocol.hot_headers import SendBatchHead, SendHead, SendReplies, SendV2Head
from pocketmq.protocol.pending_calls import failure_reply
from pocketmq.store.queues.consume_queue import ENTRY_BYTES, ConsumeQueue
from pocketmq.store.settings import FlushMode

MAX_RUN: Final = 64
"""Limit on sends or batches that are staged at once, about 50 µs of work. Then the turn checks the time again."""

_UNIQ_KEY: Final = f"{names.UNIQ_KEY}\x01"
_UNIQ_KEY_BYTES: Final = names.UNIQ_KEY.encode()
_DO_NOT_WAIT: Final = f"{names.WAIT}\x01false"
_FLAGS: Final = SysFlag.OF_CLIENTS
_TAG: Final = f"{names.TAGS}\x01".encode()
_V4_BYTES: Final = 8
_NONE: Final = (0, b"", False)


class _KnownQueue:
    """A queue that was sent to before. `packed` is its form for the C twin."""

    __slots__ = ("packed", "queue", "tally")

    def __init__(self, queue: ConsumeQueue, tally: Tally) -> None:
        self.queue = queue
        self.tally = tally
        self.packed: compiled.SendQueue = queue, tally, queue.record_magic, queue.topic_field


class Sending:
    """The send handler, for `turns`."""

    def __init__(self, state: BrokerState, destinations: Destinations, retries: Retries) -> None:
        self._state = state
        self._stage = state.store.stage
        self._destinations = destinations
        self._retries = retries
        self._unique_ids = UniqueIds(pack_ip("127.0.0.1"), os.getpid(), int.from_bytes(os.urandom(4), "big"))
        self._hosts: dict[Peer, bytes] = {}
        self._queues: dict[tuple[str, int], _KnownQueue] = {}
        self._twin = compiled.twin()
        self.supports_runs = self._twin is not None
        self._plain_queues: dict[bytes, compiled.SendQueue] = {}
        self._plan: compiled.SendPlan | None = None
        self._id_prefix = state.store.store_host.hex().upper().encode()
        self._waits_for_sync = state.store.settings.flush is FlushMode.SYNC or state.settings.now.waits_for_slaves
        self._read_settings()

    def _read_settings(self) -> None:
        self._settings_seen = settings = self._state.settings.now
        self._alterations_seen = self._state.topics.alterations
        self._queues.clear()
        self._replies = SendReplies(settings.region, settings.trace_on)
        trace = "true" if settings.trace_on else "false"
        self._added = {names.REGION: settings.region, names.TRACE_ON: trace, names.CLUSTER: settings.cluster}
        self._suffix = "".join(f"{name}\x01{value}\x02" for name, value in self._added.items()).encode()
        self._failure_ext = {names.REGION: settings.region, names.TRACE_ON: trace}
        self._plain_queues.clear()
        self._make_plan()

    def _make_plan(self) -> None:
        """Settings and address in the form of the C twin. None if the twin cannot be used with them."""
        store_host, suffix = self._state.store.store_host, self._suffix
        self._plan = None
        if self._twin is not None and len(store_host) == _V4_BYTES and _TAG not in suffix and 0 not in suffix:
            most = self._state.store.settings.max_body_bytes
            self._plan = suffix, self._replies.parts, self._id_prefix, store_host, most, self._waits_for_sync

    def lost(self, peer: Peer) -> None:
        self._hosts.pop(peer, None)

    def set_address(self, address: Address) -> None:
        """The address for clients changed: it is part of every message id."""
        self._state.store.store_host = packed = packed_host(address)
        self._id_prefix = packed.hex().upper().encode()
        self._make_plan()

    # regular messages

    def stage(self, peer: Peer, head: SendHead | SendV2Head, body: bytes) -> tuple[bytes, bool]:
        """Stage a send. Return the answer for when it is stored, and whether that waits for the disk."""
        ext = head.ext
        properties = ext.properties
        known = self._queues.get((ext.topic, ext.queue_id))
        if (
            known is None
            or not properties
            or not body
            or "DEL" in properties  # DELAY and all of TIMER_*
            or names.TRANSACTION_PREPARED in properties
            or names.POP_CK in properties
            or self._state.topics.alterations != self._alterations_seen
            or self._state.settings.now is not self._settings_seen
        ):
            return self._stage_irregular(peer, head, body)
        start = properties.find(_UNIQ_KEY)
        if start < 0 or (start and properties[start - 1] != "\x02"):
            return self._stage_irregular(peer, head, body)
        start += 9
        end = properties.find("\x02", start)
        unique_key = properties[start:end] if end >= 0 else properties[start:]
        if not unique_key:
            return self._stage_irregular(peer, head, body)
        queue_offset, log_offset = self._stage(
            known.queue,
            body,
            _with_suffix(properties.encode(), self._suffix),
            ext.flag,
            ext.sys_flag & _FLAGS,
            ext.born_timestamp,
            self._hosts.get(peer) or self._host_of(peer),
            ext.reconsume_times or 0,
        )
        tally = known.tally
        tally.count += 1
        tally.bytes += len(body)
        message_id = b"%b%016X" % (self._id_prefix, log_offset)
        reply = self._replies.encode(head.opaque, message_id, ext.queue_id, queue_offset, unique_key, None)
        return reply, self._waits_for_sync and _waits(properties)

    def stage_run(self, peer: Peer, frames: list[Frame], at: int) -> tuple[int, bytes, bool]:
        """Stage plain sends and batches that follow one another from `at` on, with the C twin.

        Return how many, their joined answers, and whether these wait for the disk.
        """
        plan, twin = self._plan, self._twin
        if (
            plan is None
            or twin is None
            or self._state.topics.alterations != self._alterations_seen
            or self._state.settings.now is not self._settings_seen
        ):
            return _NONE
        born_host = self._hosts.get(peer) or self._host_of(peer)
        if len(born_host) != _V4_BYTES:
            return _NONE
        bounds = self._state.store.run_bounds()
        run = twin.lay_out_sends(
            frames, at, MAX_RUN, self._plain_queues, plan, born_host, *bounds, MAX_ITEMS, self._next_unique_key
        )
        if run is None:
            return _NONE
        count, records, end, queues, answers = run
        entered: list[tuple[ConsumeQueue, bytes]] = []
        for (queue, tally, _, _), entries, size, joined in queues:
            entered.append((queue, entries))
            tally.count += len(entries) // ENTRY_BYTES
            tally.joined += joined
            tally.bytes += size
        self._state.store.stage_run(records, end, entered)
        return count, answers, self._waits_for_sync

    def _next_unique_key(self) -> bytes:
        return self._unique_ids.next(self._state.clock.now_ms()).encode()

    def stage_batch(self, peer: Peer, head: SendBatchHead, body: bytes) -> tuple[bytes, bool]:
        """Stage all messages of a batch, or none."""
        ext = head.ext
        properties = ext.properties or ""
        queue_id = self._queue_id(peer, ext)
        if is_retry(ext.topic):
            raise InvalidMessage(f"topic {ext.topic}: retries cannot be sent in a batch")
        if parse_properties(properties).get(names.DELAY, "0") != "0":
            raise InvalidMessage("a batch cannot be delayed; send delayed messages one by one")
        if len(body) > self._state.store.settings.max_body_bytes:
            raise InvalidMessage(
                f"the batch has {len(body)} bytes; the limit is {self._state.store.settings.max_body_bytes} (max_message_bytes)"
            )
        try:
            items = decode_batch(body)
        except ProtocolError as error:
            raise InvalidMessage(str(error)) from None
        if not items:
            raise InvalidMessage("the batch has no message")
        known = self._queues.get((ext.topic, queue_id)) or self._add_queue(ext.topic, queue_id)
        suffix, born_host = self._suffix, self._hosts.get(peer) or self._host_of(peer)
        messages = [(flag, item, _with_suffix(raw, suffix)) for flag, item, raw in items]
        first, log_offsets = self._state.store.stage_batch(
            known.queue, messages, ext.sys_flag & _FLAGS, ext.born_timestamp, born_host
        )
        tally = known.tally
        tally.count += len(items)
        tally.joined += len(items) - 1
        tally.bytes += len(body)
        prefix = self._id_prefix
        ids = b",".join([b"%b%016X" % (prefix, log_offset) for log_offset in log_offsets])
        raw_key = raw_property(properties.encode(), _UNIQ_KEY_BYTES)
        unique_key = raw_key.decode() if raw_key else self._unique_ids.next(self._state.clock.now_ms())
        reply = self._replies.encode(head.opaque, ids, queue_id, first, unique_key, None)
        return reply, self._waits_for_sync and _waits(properties)

    # all other messages

    def _stage_irregular(self, peer: Peer, head: SendHead | SendV2Head, body: bytes) -> tuple[bytes, bool]:
        ext, now_ms = head.ext, self._state.clock.now_ms()
        if not body:
            raise ImpossibleRequest("the message has no body; send at least one byte")
        queue_id = self._queue_id(peer, ext)
        properties = parse_properties(ext.properties or "")
        properties.pop(names.POP_CK, None)
        properties.setdefault(names.UNIQ_KEY, self._unique_ids.next(now_ms))
        unique_key = properties[names.UNIQ_KEY]
        draft = Draft(
            topic=ext.topic,
            queue_id=queue_id,
            body=body,
            properties=properties | self._added,
            born_ms=ext.born_timestamp,
            born_host=self._hosts.get(peer) or self._host_of(peer),
            flag=ext.flag,
            sys_flag=ext.sys_flag & _FLAGS,
            reconsume_times=ext.reconsume_times or 0,
        )
        self.redirect(draft, ext, head.version)
        if not is_retry(ext.topic) and (ext.topic, queue_id) not in self._queues:
            self._add_queue(ext.topic, queue_id)
        waits = properties.get(names.WAIT) != "false"
        stored = self._state.appender.stage(draft)
        tally = self._state.stats.sent(ext.topic)
        tally.count += 1
        tally.bytes += len(body)
        message_id = b"%b%016X" % (self._id_prefix, stored.log_offset)
        recall = recall_handle_for(draft, self._state.settings.now.broker_name)
        reply = self._replies.encode(head.opaque, message_id, queue_id, stored.queue_offset, unique_key, recall)
        return reply, self._waits_for_sync and waits

    def redirect(self, draft: Draft, header: SendMessage, version: int) -> None:
        """A retry may become a dead letter, a message of a transaction becomes a half message."""
        if is_retry(draft.topic):
            self._retries.retarget_resend(draft, header, version)
        if self._is_half(draft):
            as_half(draft)

    def _is_half(self, draft: Draft) -> bool:
        if draft.properties.get(names.TRANSACTION_PREPARED, "").lower() != "true":
            return False
        if draft.reconsume_times > 0 and draft.properties.get(names.DELAY, "0") != "0":
            return False
        if self._state.settings.now.transactions_rejected:
            raise NoPermission("this broker accepts no transactions: rejectTransactionMessage is on")
        return True

    def _queue_id(self, peer: Peer, ext: SendMessage) -> int:
        queue_id = self._destinations.queue_id(peer, ext)
        self._destinations.require_known(ext.topic)
        if (
            self._state.topics.alterations != self._alterations_seen
            or self._state.settings.now is not self._settings_seen
        ):
            self._read_settings()
        return queue_id

    def _add_queue(self, topic: str, queue_id: int) -> _KnownQueue:
        known = _KnownQueue(self._state.store.queue(parse_topic(topic), queue_id), self._state.stats.sent(topic))
        self._queues[topic, queue_id] = known
        queue = known.queue
        if not queue.is_delay:
            key = b"%b/%d" % (queue.topic_bytes, queue_id)
            self._plain_queues[key] = known.packed
        return known

    def _host_of(self, peer: Peer) -> bytes:
        host = packed_host(peer.address)
        if peer.is_open:  # a lost peer would never be removed again
            self._hosts[peer] = host
        return host

    def failed(self, opaque: int, error: Exception) -> bytes:
        reply = failure_reply(Command(0, opaque=opaque), error)
        reply.ext = self._failure_ext
        return encode_command(reply)


def _with_suffix(properties: bytes, suffix: bytes) -> bytes:
    """Encoded properties with further ones at the end."""
    return properties + suffix if properties[-1:] in (b"\x02", b"") else properties + b"\x02" + suffix


def _waits(properties: str) -> bool:
    """Whether a send waits for the disk: it does unless it says otherwise."""
    return _DO_NOT_WAIT not in properties or parse_properties(properties).get(names.WAIT) != "false"

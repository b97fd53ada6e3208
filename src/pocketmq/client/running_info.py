"""What a consumer tells about itself when an administrator asks: the numbers that `mqadmin consumerStatus` shows."""

import sys
import threading
import traceback
from collections.abc import Iterable

from pocketmq.client.consume_stats import ConsumeStats
from pocketmq.client.consumer_settings import SharingSettings
from pocketmq.client.flow_limits import PauseCounts
from pocketmq.client.offsets import Offsets
from pocketmq.client.owned_queue import OwnedQueue
from pocketmq.clock import Clock
from pocketmq.codes import VERSION
from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.bodies.heartbeat import ConsumeType
from pocketmq.protocol.bodies.running_info import (
    CLIENT_VERSION,
    CONSUME_ORDERLY,
    CONSUME_TYPE,
    CONSUMER_START_TIMESTAMP,
    NAMESERVER_ADDR,
    THREADPOOL_CORE_SIZE,
    ConsumerRunningInfo,
)

_SECRET = frozenset({"credentials", "tls", "name_servers", "rpc_hook", "offset_store"})


def running_info(
    settings: SharingSettings,
    core_workers: int,
    name_servers: str,
    consume_type: ConsumeType,
    subscriptions: Iterable[Subscription],
    owned: Iterable[OwnedQueue],
    offsets: Offsets,
    stats: ConsumeStats,
    pauses: PauseCounts,
    clock: Clock,
    *,
    started_ms: int,
    stacks: bool,
) -> ConsumerRunningInfo:
    """All of it. With `stacks`, also what every thread of this process is doing."""
    now, now_ms = clock.monotonic(), clock.now_ms()
    wanted = tuple(subscriptions)
    return ConsumerRunningInfo(
        properties={
            NAMESERVER_ADDR: name_servers + ";",
            CONSUME_TYPE: consume_type.value,
            CONSUME_ORDERLY: _text(getattr(settings, "ordered", False)),
            THREADPOOL_CORE_SIZE: str(core_workers),
            CONSUMER_START_TIMESTAMP: str(started_ms),
            CLIENT_VERSION: VERSION.name,
            **{name: _text(getattr(settings, name)) for name in settings.__struct_fields__ if name not in _SECRET},
            **{f"pauses: {cause}": str(count) for cause, count in pauses.snapshot().items()},
        },
        subscription_set=wanted,
        mq_table={one.queue: one.flight.info(_committed(offsets, one.queue), now, now_ms) for one in owned},
        status_table={one.topic: stats.status(one.topic, now) for one in wanted},
        jstack=_stacks() if stacks else None,
    )


def _committed(offsets: Offsets, queue: MessageQueue) -> int:
    offset = offsets.get(queue)
    return -1 if offset is None else offset


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _stacks() -> str:
    frames = sys._current_frames()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}" for ident, frame in frames.items()
    )

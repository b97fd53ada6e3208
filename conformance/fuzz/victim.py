"""A program with our client that does all it can for a while: `python -m conformance.fuzz.victim ADDRESS SECONDS`.

Every call ends within its time, with a result or with an error of ours. It prints one line of JSON at the end: calls, errors by
kind, and how its memory grew between its first third and its end. An error of another kind ends it.
"""

import asyncio
import json
import logging
import resource
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from pocketmq import AsyncAdmin, AsyncProducer, AsyncPullConsumer, AsyncPushConsumer, Message, StoredMessage
from pocketmq.errors import PocketMQError
from pocketmq.model.queue import MessageQueue

CALL_MS: Final = 80
CLIENTS: Final = 6
CALL_S: Final = 15.0
"""With all attempts of a call: one that takes longer hangs."""

ROUND_S: Final = 3.0
"""How long one client lives."""

Act = Callable[[], Awaitable[Any]]


async def live(name_server: str, seconds: float) -> dict[str, Any]:
    outcomes: Counter[str] = Counter()
    lives = [asyncio.create_task(_one(number, name_server, seconds, outcomes)) for number in range(CLIENTS)]
    await asyncio.sleep(seconds / 3)
    first_bytes = _memory_bytes()
    await asyncio.gather(*lives)
    return {"outcomes": dict(outcomes), "grown_bytes": _memory_bytes() - first_bytes}


async def _one(number: int, name_server: str, seconds: float, outcomes: Counter[str]) -> None:
    """Clients that live for some seconds, and then others."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    options: dict[str, Any] = {
        "instance_name": f"victim-{number}",
        "call_timeout_ms": CALL_MS,
        "connect_timeout_ms": CALL_MS,
        "stop_timeout_ms": 500,
    }

    async def listener(message: StoredMessage) -> None:
        outcomes["consumed"] += 1

    while loop.time() < end:
        producer = AsyncProducer(name_server, group="victims", send_timeout_ms=CALL_MS, **options)
        puller = AsyncPullConsumer(name_server, group="pullers", **options)
        pusher = AsyncPushConsumer(name_server, group="victims", start_at="first", **options)
        pusher.on("shop")(listener)
        admin = AsyncAdmin(name_server, **options)
        async with producer, puller, admin:
            await _tried(outcomes, pusher.start)
            round_end = min(end, loop.time() + ROUND_S)
            while loop.time() < round_end:
                for act in _acts(producer, puller, admin):
                    await _tried(outcomes, act)
            await _tried(outcomes, pusher.stop)


def _acts(producer: AsyncProducer, puller: AsyncPullConsumer, admin: AsyncAdmin) -> list[Act]:
    queue = MessageQueue("shop", "broker-a", 0)
    return [
        lambda: producer.send("shop", b"1", keys="1"),
        lambda: producer.send_many([Message("shop", b"1"), Message("shop", b"2")]),
        lambda: producer.request("shop", b"?", timeout_s=0.1),
        lambda: puller.queues("shop"),
        lambda: puller.pull(queue, 0, timeout_s=0.1),
        lambda: puller.max_offset(queue),
        lambda: puller.committed(queue),
        lambda: admin.topics.names(),
        lambda: admin.topics.queues("shop"),
        lambda: admin.cluster.clusters(),
        lambda: admin.groups.members("victims"),
        lambda: admin.messages.by_key("shop", "1"),
        lambda: admin.offsets.lag("victims"),
    ]


async def _tried(outcomes: Counter[str], act: Act) -> None:
    try:
        async with asyncio.timeout(CALL_S):
            await act()
    except PocketMQError as error:
        outcomes[type(error).__name__] += 1
    else:
        outcomes["done"] += 1


def _memory_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    print(json.dumps(asyncio.run(live(sys.argv[1], float(sys.argv[2])))))

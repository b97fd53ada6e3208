"""One shot, in a process of its own like a user's program: `python -m bench.client.shot MODE NUMBER NAME_SERVER TOPIC SIZE …`.

Prints one JSON line. End-to-end clients print `ready` before it; an end-to-end producer starts when it reads `go`.
"""

import sys
import time
from typing import NamedTuple

from bench.client import consuming, producing
from bench.client.measured import Measured, encode

STAMP_BYTES = 8
"""Length of the send time at the start of a body, in monotonic time, which all processes share."""


class Order(NamedTuple):
    """The arguments of a shot."""

    mode: str
    number: int
    name_server: str
    topic: str
    size: int
    seconds: float
    warm_s: float
    messages: int


def run(order: Order) -> Measured:
    where = order.name_server, order.topic
    if order.mode == "threads":
        return producing.by_threads(*where, b"x" * order.size, order.number, order.seconds, order.warm_s)
    if order.mode in PRODUCING:
        load = PRODUCING[order.mode]
        return producing.run_on_loop(load(*where, b"x" * order.size, order.number, order.seconds, order.warm_s))
    if order.mode == "consume_loop":
        return producing.run_on_loop(consuming.by_loop(*where, order.messages))
    if order.mode == "consume_pool":
        return consuming.by_pool(*where, order.messages)
    if order.mode == "receive":
        return producing.run_on_loop(consuming.by_loop(*where, order.messages, stamped=True, ready=say_ready))
    if order.mode == "fill":
        return producing.run_on_loop(_send(order, batch=order.number))
    assert order.mode in ("send", "send_many"), order.mode
    say_ready()
    sys.stdin.readline()
    return producing.run_on_loop(_send(order, batch=order.number if order.mode == "send_many" else 1))


async def _send(order: Order, batch: int) -> Measured:
    def new_body() -> bytes:
        return time.monotonic_ns().to_bytes(8, "big") + filler

    filler = b"x" * (order.size - STAMP_BYTES)
    return await producing.send_count(
        order.name_server, order.topic, new_body, order.messages, window=order.number, batch=batch
    )


PRODUCING = {
    "tasks": producing.by_tasks,
    "window": producing.by_window,
    "linger": producing.by_linger,
    "many": producing.by_many,
}


def say_ready() -> None:
    print("ready", flush=True)


def main(words: list[str]) -> None:
    mode, number, name_server, topic, size, seconds, warm_s, count = words
    order = Order(mode, int(number), name_server, topic, int(size), float(seconds), float(warm_s), int(count))
    print(encode(run(order)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

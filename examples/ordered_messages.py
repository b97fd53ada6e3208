"""Messages with the same sharding key go to one queue, and an ordered consumer gets them in the order of the sends.

Prints:
    order 1: placed, paid, shipped
    order 2: placed, paid, shipped
    order 3: placed, paid, shipped
"""

import threading
from collections import defaultdict

from pocketmq import Producer, PushConsumer, Server, StoredMessage

STEPS = ("placed", "paid", "shipped")
seen: dict[str, list[str]] = defaultdict(list)
done = threading.Event()

with Server() as server, Producer(server.name_server, group="shop") as producer:
    for step in STEPS:
        for order in ("1", "2", "3"):
            producer.send("orders", step.encode(), keys=order, sharding_key=order)

    consumer = PushConsumer(server.name_server, group="tracking", ordered=True, start_at="first")

    @consumer.on("orders")
    def note(message: StoredMessage) -> None:
        seen[message.keys[0]].append(message.body.decode())
        if sum(map(len, seen.values())) == 9:
            done.set()

    with consumer:
        done.wait(30)

for order in sorted(seen):
    print(f"order {order}:", ", ".join(seen[order]))

"""Traffic for a cluster that is shown in the console: messages are sent and consumed, and a pipeline commits batches."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pocketmq

SENDS_S = 0.02
BATCH_S = 1.5


@contextmanager
def traffic(name_server: str) -> Iterator[None]:
    over = threading.Event()
    threads = [threading.Thread(target=work, args=(name_server, over)) for work in (_send, _move_on)]
    consumer = pocketmq.PushConsumer(name_server, group="analytics", start_at="first")
    consumer.on("clicks", tags="page || cart")(lambda message: None)
    with consumer:
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()


def _send(name_server: str, over: threading.Event) -> None:
    with pocketmq.Producer(name_server, group="web") as producer:
        number = 0
        while not over.wait(SENDS_S):
            number += 1
            for _ in range(1 + number // 40 % 5):
                producer.send("clicks", b'{"page": "/cart"}', tags="cart", keys=str(number))


def _move_on(name_server: str, over: threading.Event) -> None:
    """As a Spark query with groupId does: the group has no members, and its offsets move."""
    with pocketmq.Admin(name_server) as admin:
        while not over.wait(BATCH_S):
            ends = {queue.queue: queue.max_offset for queue in admin.topics.queues("clicks")}
            admin.offsets.reset("spark-orders", "clicks", ends)

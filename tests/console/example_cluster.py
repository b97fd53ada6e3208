"""A cluster with content for every page: topics, groups, dead letters, waiting messages, a pipeline, unusual names
and bodies.
"""

import json
import threading
import time
from collections.abc import Callable

import pocketmq
from pocketmq.model.queue import MessageQueue

ORDERS = 120
DEAD = 7
REASON = "ValueError: could not convert string to float: '12,5'\n  File \"payments.py\", line 42, in charge"
NASTY = '<script>alert(1)</script> & "quotes"'


def fill(name_server: str) -> None:
    """The data of the cluster. No client is connected afterwards."""
    with pocketmq.Admin(name_server) as admin:
        for topic, queues in (("orders", 4), ("payments", 4), ("emails", 2), ("clicks", 8)):
            admin.topics.create(topic, queues=queues)
        for group in ("billing", "search-index", "mailer", "spark-orders"):
            admin.groups.create(group)
        with pocketmq.Producer(name_server, group="shop", trace=True) as producer:
            _send(producer)
            for group, topic, share in (
                ("billing", "orders", 3),
                ("search-index", "orders", 1),
                ("mailer", "emails", 1),
            ):
                _stand(admin, group, topic, share)
    _make_dead_letters(name_server)
    _leave_undecided(name_server)


def _send(producer: "pocketmq.Producer") -> None:
    for number in range(ORDERS):
        body = json.dumps({"order": 1000 + number, "customer": number % 17, "total": round(number * 3.7, 2)}).encode()
        producer.send(
            "orders", body, tags="new" if number % 3 else "changed", keys=str(1000 + number), properties={"shop": "eu"}
        )
    for number in range(40):
        producer.send("emails", b"hello %d" % number, queue=MessageQueue("emails", "broker-a", 0 if number % 5 else 1))
    producer.send("payments", NASTY.encode(), keys="nasty", properties={"note": NASTY})
    producer.send("payments", bytes(range(256)) * 4, keys="binary")
    producer.send("payments", b"x" * 300_000, keys="huge")
    for number in range(4):
        producer.send("emails", b"later %d" % number, delay_ms=3_600_000 * (number + 1))
    producer.send("emails", b"by level", delay_level=18)


def _stand(admin: "pocketmq.Admin", group: str, topic: str, share: int) -> None:
    """At a part of each queue."""
    ends = {queue.queue: queue.max_offset for queue in admin.topics.describe(topic).queues}
    admin.offsets.reset(group, topic, {queue: end * share // 4 for queue, end in ends.items()})


def _make_dead_letters(name_server: str) -> None:
    """A consumer that makes dead letters of some messages, with a reason."""
    with pocketmq.Producer(name_server) as producer:
        for number in range(DEAD):
            producer.send(
                "payments", json.dumps({"payment": number, "amount": "12,5"}).encode(), tags="card", keys=f"p{number}"
            )
    died = threading.Semaphore(0)
    consumer = pocketmq.PushConsumer(name_server, group="payments-worker", start_at="first", trace=True)

    @consumer.on("payments")
    def handle(message: pocketmq.StoredMessage) -> None:
        died.release()
        raise pocketmq.DeadLetter(REASON)

    with consumer:
        for _ in range(DEAD + 3):
            assert died.acquire(timeout=20), "the consumer did not get its messages"
        _until_dead(name_server, DEAD + 3)


def _until_dead(name_server: str, many: int) -> None:
    with pocketmq.Admin(name_server) as admin:
        wait_until(lambda: admin.dead_letters.count("payments-worker") >= many)


def _leave_undecided(name_server: str) -> None:
    """As if its producer had died between the message and its decision."""
    check = pocketmq.TransactionState.UNKNOWN
    with (
        pocketmq.Producer(name_server, group="till", check=lambda _: check) as producer,
        producer.transaction("payments") as transaction,
    ):
        transaction.send(b"half", keys="t1")
        transaction.leave_open()


def wait_until(is_so: Callable[[], bool], seconds: float = 20) -> None:
    """Repeat a check, and fail with a message at the deadline."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)

"""Let brokers lease messages to listeners (POP): no member owns a queue, and a message that fails returns alone.

Prints:
    paid 1: attempt 1
    paid 2: attempt 1
    paid 3: attempt 1
    paid 2: attempt 2
"""

import threading

from pocketmq import Producer, PushConsumer, RetryLater, Server, StoredMessage

with Server() as server, Producer(server.name_server) as producer:
    for number in (1, 2, 3):
        producer.send("orders", b"paid %d" % number, sharding_key="one queue")

    consumer = PushConsumer(server.name_server, group="billing", mode="pop", start_at="first", workers=1)
    done = threading.Semaphore(0)

    @consumer.on("orders")
    def handle(message: StoredMessage) -> None:
        print(f"{message.body.decode()}: attempt {message.reconsume_times + 1}")
        done.release()
        if message.body == b"paid 2" and message.reconsume_times == 0:
            raise RetryLater("not now", delay_level=1)  # after a second

    with consumer:
        for _ in range(4):
            done.acquire(timeout=30)

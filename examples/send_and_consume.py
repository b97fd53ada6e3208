"""Send a message and consume it, with a server that runs inside the program.

Prints:
    cooking two pizzas
"""

import threading

import pocketmq

done = threading.Event()

with pocketmq.Server() as server, pocketmq.Producer(server.name_server) as producer:
    producer.send("orders", b"two pizzas", keys="42")
    consumer = pocketmq.PushConsumer(server.name_server, group="kitchen", start_at="first")

    @consumer.on("orders")
    def cook(message: pocketmq.StoredMessage) -> None:
        print("cooking", message.body.decode())
        done.set()

    with consumer:
        done.wait(30)

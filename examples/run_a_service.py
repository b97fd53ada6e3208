"""A service that consumes messages until SIGINT or SIGTERM. It then completes running calls, commits, and returns.

Prints:
    charged Ann 3.50
    charged Ben 12.00
    stopped in order
"""

import os
import signal
from dataclasses import dataclass

import pocketmq


@dataclass
class Order:
    customer: str
    cents: int


with pocketmq.Server() as server:
    receipts = pocketmq.Producer(server.name_server, group="tills")
    consumer = pocketmq.PushConsumer(server.name_server, group="tills", start_at="earliest", ordered=True)

    @consumer.on("orders")
    def charge(order: Order) -> None:
        receipts.send("receipts", {"customer": order.customer, "paid": order.cents})
        print(f"charged {order.customer} {order.cents / 100:.2f}")
        if order.customer == "Ben":
            os.kill(os.getpid(), signal.SIGTERM)  # as `systemctl stop` or Kubernetes would

    with pocketmq.Producer(server.name_server) as shop:
        for order in (Order("Ann", 350), Order("Ben", 1200)):
            shop.send("orders", order, sharding_key="till 1")

    pocketmq.run(receipts, consumer)  # one consumer alone: consumer.run()
    print("stopped in order")

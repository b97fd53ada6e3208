"""A service on asyncio: it reads orders as JSON, and sends a receipt for each.

Prints:
    receipt for Ann: 3.50
    receipt for Ben: 12.00
"""

import asyncio
from dataclasses import dataclass

from pocketmq import AsyncLitePullConsumer, AsyncProducer, AsyncPushConsumer, Server


@dataclass
class Order:
    customer: str
    cents: int


async def take_orders(name_server: str, consumer: AsyncPushConsumer) -> None:
    """The service itself: runs until SIGINT or SIGTERM, or until the consumer is stopped."""
    async with AsyncProducer(name_server, group="tills") as producer:

        @consumer.on("orders")
        async def charge(order: Order) -> None:
            await producer.send("receipts", f"{order.customer}: {order.cents / 100:.2f}")

        await consumer.run()


async def main() -> None:
    async with Server() as server, AsyncProducer(server.name_server) as shop:
        for order in (Order("Ann", 350), Order("Ben", 1200)):
            await shop.send("orders", order, keys=order.customer)

        consumer = AsyncPushConsumer(server.name_server, group="tills", start_at="first")
        service = asyncio.create_task(take_orders(server.name_server, consumer))
        receipts = []
        async with AsyncLitePullConsumer(server.name_server, group="readers", start_at="first") as reader:
            await shop.send("receipts", b"Zoe: 0.00")  # so that the topic is there
            await reader.subscribe("receipts")
            async for message in reader:
                receipts.append(message.body.decode())
                if len(receipts) == 3:
                    break
        await consumer.stop()
        await service
        for receipt in sorted(receipts)[:2]:
            print("receipt for", receipt)


asyncio.run(main())

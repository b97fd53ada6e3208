"""FastStream on RocketMQ: a handler turns orders into invoices, and replies to whoever waits for one.

Prints:
    Ann pays 350 cents
"""

import asyncio

from pydantic import BaseModel

from pocketmq import Server
from pocketmq.integrations.faststream import RocketBroker


class Order(BaseModel):
    buyer: str
    cents: int


async def main() -> None:
    async with Server() as server, RocketBroker(server.name_server, group="billing", logger=None) as broker:

        @broker.subscriber("orders", start_at="first")
        @broker.publisher("invoices")
        async def bill(order: Order) -> str:
            return f"{order.buyer} pays {order.cents} cents"

        await broker.start()
        print(await (await broker.request(Order(buyer="Ann", cents=350), "orders", timeout=30)).decode())


asyncio.run(main())

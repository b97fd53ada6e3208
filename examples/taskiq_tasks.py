"""taskiq on RocketMQ: a task with a delay, run by a worker in this process, and its result.

Prints:
    1 + 2 = 3
"""

import asyncio

from taskiq.receiver import Receiver

from pocketmq import Server
from pocketmq.integrations.taskiq import RocketBroker, RocketResults


async def main() -> None:
    async with Server() as server:
        broker = RocketBroker(server.name_server).with_result_backend(RocketResults(server.name_server))

        @broker.task
        async def add(one: int, two: int) -> int:
            return one + two

        await broker.startup()
        task = await add.kicker().with_labels(delay=0.5).kiq(1, 2)
        finish = asyncio.Event()
        worker = asyncio.create_task(Receiver(broker, run_startup=False, max_async_tasks=10).listen(finish))
        print("1 + 2 =", (await task.wait_result(timeout=30)).return_value)
        finish.set()
        await worker
        await broker.shutdown()


asyncio.run(main())

"""The length of the path of a message, in calls and modules. This test detects that it grows."""

import asyncio

from tests.client.consumer.call_path import PathTracer
from tests.client.kit import until

from pocketmq.client.consumer.pull_loop import PullRun
from pocketmq.client.consumer.push_consumer import AsyncPushConsumer
from pocketmq.client.producer.blocking_producer import Producer
from pocketmq.embedded import Server
from pocketmq.model.message import StoredMessage

MAX_CALLS = 40
MAX_MODULES = 14


def test_a_message_needs_few_calls_from_its_pull_to_its_recorded_offset() -> None:
    async def main(server: Server, producer: Producer) -> list[tuple[int, int, str]]:
        tracer = PathTracer(begins=PullRun.answered, aside=PullRun.continue_run)
        consumer = AsyncPushConsumer(
            server.name_server, group="G", start_at="first", client_ip="127.0.0.1", own_thread=False
        )

        handled: list[StoredMessage] = []
        consumer.on("T")(handled.append)

        with tracer.recording():
            async with consumer:
                await until(lambda: handled)  # from now on pulls wait at the broker for what is sent
                while len(tracer.paths) < 5 and len(handled) < 100:  # a pull that follows none has another path
                    expected = len(handled) + 1
                    await asyncio.to_thread(producer.send, "T", b"%d" % expected)
                    await until(lambda: len(handled) >= expected)  # noqa: B023 it is over before the next one
        return [
            (len(path), len({call.module for call in path}), "\n".join(f"{call.module} {call.name}" for call in path))
            for path in tracer.paths
        ]

    with Server() as server, Producer(server.name_server, group="PG") as producer:
        producer.send("T", b"first")
        found = asyncio.run(main(server, producer))

    calls, modules, text = min(found)  # what the loop did beside it is in the others
    assert calls <= MAX_CALLS, text
    assert modules <= MAX_MODULES, text

"""A long run at a moderate rate that checks for growing memory. `python -m bench.client.soak --minutes 30`.

One process sends and consumes, with a broker in another process. It samples its memory every few seconds. The first third is the warm-up.
Memory is flat when the last third needs no more than the middle third, within a small tolerance.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from bench.broker.machine import memory
from bench.client.stage import our_broker
from pocketmq import Admin, AsyncProducer, AsyncPushConsumer, SendResult, StoredMessage
from pocketmq.net.loops import new_loop

TOPIC = "soak"
ROUNDS_PER_S = 10
TIMEOUT_MS = 30_000
"""Send timeout, long enough for a busy machine."""
SLACK_MIB = 4.0
SLACK_SHARE = 0.05


class Soak:
    """Sends at a given rate, consumes, and samples memory."""

    def __init__(self, name_server: str, seconds: float, rate: int, sample_s: float) -> None:
        self._name_server = name_server
        self._seconds = seconds
        self._rate = rate
        self._sample_s = sample_s
        self.sent = 0
        self.received = 0
        self.failed = 0
        self.memory_mib: list[float] = []

    async def run(self) -> None:
        consumer = AsyncPushConsumer(self._name_server, group="soak", start_at="first")

        @consumer.on(TOPIC)
        async def handle(message: StoredMessage) -> None:
            self.received += 1

        patient = AsyncProducer(self._name_server, group="soak", send_timeout_ms=TIMEOUT_MS, retry_when_busy=True)
        async with patient as producer, consumer:
            sampling = asyncio.create_task(self._sample())
            await self._send(producer)
            sampling.cancel()
            async with asyncio.timeout(30):
                while self.received < self.sent:  # noqa: ASYNC110 no event for each message
                    await asyncio.sleep(0.1)

    async def _send(self, producer: AsyncProducer) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._seconds
        while (began := loop.time()) < end:
            sends = (
                producer.send(TOPIC, b"x" * 100, keys=str(self.sent + at)) for at in range(self._rate // ROUNDS_PER_S)
            )
            results = await asyncio.gather(*sends, return_exceptions=True)
            stored = sum(isinstance(result, SendResult) for result in results)
            self.sent += stored
            self.failed += len(results) - stored
            await asyncio.sleep(max(0.0, began + 1 / ROUNDS_PER_S - loop.time()))

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(self._sample_s)
            self.memory_mib.append(memory([os.getpid()]).own_mib)


def is_flat(samples: Sequence[float]) -> bool:
    """Whether the last third of the samples is not above the middle third."""
    third = len(samples) // 3
    if third == 0:
        return False
    before, after = mean(samples[third : 2 * third]), mean(samples[2 * third :])
    return after <= before + max(SLACK_MIB, SLACK_SHARE * before)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m bench.client.soak", description="Check that the client's memory stays flat."
    )
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--rate", type=int, default=2_000, help="messages per second")
    options = parser.parse_args(arguments)
    seconds = options.minutes * 60
    with tempfile.TemporaryDirectory(prefix="pocketmq-soak-") as folder, our_broker(Path(folder)) as (name_server, _):
        with Admin(name_server) as admin:
            admin.topics.create(TOPIC)
        soak = Soak(name_server, seconds, options.rate, max(0.2, seconds / 180))
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(soak.run())
    samples = soak.memory_mib
    third = len(samples) // 3
    parts = [samples[:third], samples[third : 2 * third], samples[2 * third :]]
    print(
        f"{soak.sent:,} sent, {soak.received:,} received in {options.minutes:g} minutes; {soak.failed:,} sends failed"
    )
    print("memory in MiB, by thirds:", ", ".join(f"{mean(part):.1f}" for part in parts if part))
    if not is_flat(samples):
        sys.exit("memory grows")
    print("memory is flat")


if __name__ == "__main__":
    main()

"""Examinations of a cluster that runs in memory and in virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace
from tests.client.real_cluster import NAME_SERVER, RealCluster

from pocketmq.client.consumer.push_consumer import AsyncPushConsumer
from pocketmq.clock import Clock
from pocketmq.doctor import Report, Verdict, async_examine

HOST = "10.0.4.1"
"""The address of the doctor, so that a test can cut it off."""


async def examine(
    cluster: RealCluster, name_servers: str = str(NAME_SERVER), *, clock: Clock | None = None, **options: Any
) -> Report:
    dependencies = cluster.dependencies(HOST)
    if clock is not None:
        dependencies = replace(dependencies, clock=clock)
    return await async_examine(name_servers, dependencies=dependencies, **{"client_ip": HOST, **options})


@asynccontextmanager
async def reading(
    cluster: RealCluster, listener: Any, *, tags: str = "*", host: str = "10.0.2.1", topic: str = "T", **options: Any
) -> AsyncIterator[AsyncPushConsumer]:
    """A member of G, once it has queues."""
    consumer = cluster.push_consumer(host=host, **options)
    consumer.on(topic, tags=tags)(listener)
    await consumer.start()
    try:
        async with asyncio.timeout(120):
            while not await consumer.queues():  # noqa: ASYNC110 there is no event
                await asyncio.sleep(0.1)
        yield consumer
    finally:
        await consumer.stop()


def broken(report: Report) -> list[str]:
    """The names of the broken steps."""
    return [step.name for step in report.steps if step.verdict is Verdict.BROKEN]


def first(report: Report) -> str:
    """The finding of the first broken step."""
    assert report.first_broken is not None
    return report.first_broken.finding.text

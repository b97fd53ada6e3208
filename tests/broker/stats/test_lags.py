"""The lag of groups, as the metrics report it."""

import asyncio

from tests.broker.handlers.pulling_kit import filled
from tests.broker.running import RunningBroker, in_virtual_time, running

from pocketmq.broker.metrics import LagMetrics
from pocketmq.metrics.families import labels_of


async def told(broker: RunningBroker) -> dict[str, float]:
    """The values of group G in topic T, by the last word of the metric name."""
    parts = broker.parts
    metrics = LagMetrics(parts.state)
    families = await metrics.families()
    wanted = labels_of(topic="T", consumer_group="G")
    found = [(family.name, sample) for family in families for sample in family.samples if sample.labels == wanted]
    return {name.rpartition("lag_")[2]: sample.value for name, sample in found}


@in_virtual_time
async def test_the_lag_of_a_group_has_messages_and_the_age_of_the_oldest() -> None:
    async with running() as broker:
        client = await filled(broker, 3)
        await client.beat()
        await client.commit(1)
        stored_ms = broker.stored()[1].store_ms
        await asyncio.sleep(20)

        found = await told(broker)

        assert (found["messages"], found["latency"]) == (2, broker.clock.now_ms() - stored_ms)


@in_virtual_time
async def test_after_retention_the_lag_starts_at_the_first_remaining_message() -> None:
    async with running(store={"log_file_bytes": 4096, "retention_hours": 0}) as broker:
        client = await filled(broker, 60, size=300)
        await client.beat()
        await client.commit(1)
        await asyncio.sleep(15)
        assert broker.store.drop_expired()
        await asyncio.sleep(1)

        found = await told(broker)

        first = broker.stored()[0]
        assert first.queue_offset > 1
        assert (found["messages"], found["latency"]) == (59, broker.clock.now_ms() - first.store_ms)


@in_virtual_time
async def test_internal_groups_of_programs_are_omitted() -> None:
    async with running() as broker:
        await filled(broker, 3)
        parts = broker.parts
        parts.state.groups.ensure("etl-0123456789ab-odd", 0)
        parts.state.offsets.commit("etl-0123456789ab-odd", "T", 0, 1)
        metrics = LagMetrics(parts.state)

        assert not [sample for family in await metrics.families() for sample in family.samples if sample.labels]

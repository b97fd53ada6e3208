"""The acts that our client plays with Apache's brokers are played with ours, in memory and in virtual time."""

from typing import Any

import pytest
from conformance.python.acts import PROGRAMMES
from conformance.python.stage import Act, Stage, Traits, played
from tests.client.real_cluster import NAME_SERVER, RealCluster, real_cluster

from pocketmq.broker.settings import TransactionSettings
from pocketmq.client.cluster.instance import Dependencies
from pocketmq.testing import run

TRAITS = Traits(threads=False)
ACTS = [(programme.name, act) for programme in PROGRAMMES for act in programme.acts_for(TRAITS)]
ACT_S = 600
CHECKS = TransactionSettings(timeout_ms=2000, check_interval_ms=4000)


class MemoryStage(Stage):
    """Every client is a host of its own."""

    def __init__(self, cluster: RealCluster) -> None:
        super().__init__(str(NAME_SERVER), TRAITS)
        self._cluster = cluster
        self._hosts = 0

    def dependencies(self) -> Dependencies:
        return self._cluster.dependencies(f"10.0.5.{self._hosts}")

    def options(self) -> dict[str, Any]:
        self._hosts += 1
        return {**super().options(), "client_ip": f"10.0.5.{self._hosts}"}

    def consumer_options(self) -> dict[str, Any]:
        return {**self.options(), "own_thread": False}

    def now_ms(self) -> int:
        return self._cluster.clock.now_ms()


@pytest.mark.parametrize(("kind", "act"), ACTS, ids=[f"{kind}: {act.check}" for kind, act in ACTS])
def test_a_scene_recorded_with_apache_succeeds_with_our_broker(kind: str, act: Act) -> None:
    async def main() -> list[str]:
        async with real_cluster(topics=(), trace_topic=True, transaction=CHECKS) as cluster:
            return await played(act, MemoryStage(cluster), ACT_S)

    assert run(main()) == []

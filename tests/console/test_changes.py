"""The counts of brokers, and when they mean that nothing changed."""

import pytest
from msgspec.structs import replace

from pocketmq.client.admin.cluster import BrokerState
from pocketmq.client.admin.targets import BrokerAddress
from pocketmq.console.snapshot import change_counts
from pocketmq.net.address import Address


def state_of(name: str, changes: dict[str, int], *, broker_id: int = 0) -> BrokerState:
    place = BrokerAddress(name, "c", broker_id, Address("127.0.0.1", 1))
    return BrokerState(broker=place, booted_ms=7, changes=changes)


@pytest.mark.parametrize("masters", [[], [{}], [{"member": 3}, {}], [{"topic": 3}]])
def test_changes_are_known_only_when_all_masters_count_them(masters: list[dict[str, int]]) -> None:
    brokers = [state_of(f"broker-{at}", changes) for at, changes in enumerate(masters)]

    assert change_counts(brokers, "member") is None
    assert change_counts([state_of("broker-a", {"member": 0}), state_of("broker-a", {}, broker_id=1)], "member"), (
        "a slave"
    )


def test_a_restarted_broker_counts_as_changed_at_equal_counts() -> None:
    before = state_of("broker-a", {"member": 3})

    assert change_counts([before], "member") == change_counts(
        [state_of("broker-a", {"member": 3, "topic": 1})], "member"
    )
    assert change_counts([before], "member") != change_counts([replace(before, booted_ms=8)], "member")

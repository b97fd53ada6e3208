"""The state of a broker over a store of a test."""

from tests.store.open_store import OpenStore

from pocketmq.broker.settings import BrokerSettings
from pocketmq.broker.state import BrokerState


def state_over(opened: OpenStore, settings: BrokerSettings | None = None) -> BrokerState:
    """New tables over this store. New messages wake no pulls."""
    return BrokerState(settings or BrokerSettings(), opened.clock, lambda **_: opened.store)

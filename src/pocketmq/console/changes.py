"""What need not be asked again: brokers of PocketMQ count how often topics, groups and members of groups changed.

    the same numbers as before the last question ──► what is known is true still
    another number, another broker, a new start  ──► ask
    a broker that does not count: Apache's       ──► ask

The numbers come with what brokers say about themselves, which is asked all the time and costs nearly nothing.
"""

from collections.abc import Iterable, Mapping

from pocketmq.client.administration.cluster import BrokerState
from pocketmq.client.administration.reach import BrokerPlace

Changes = Mapping[BrokerPlace, tuple[int | None, ...]]
"""When each master booted, and how often it has counted a change of something since."""


def counted(brokers: Iterable[BrokerState], *what: str) -> Changes | None:
    """How often each of `what`, words of `COUNTED`, changed at all masters; None where one of them does not count."""
    masters = [state for state in brokers if state.place.is_master]
    if not masters or not all(state.changes.keys() >= set(what) for state in masters):
        return None
    return {state.place: (state.booted_ms, *(state.changes[one] for one in what)) for state in masters}

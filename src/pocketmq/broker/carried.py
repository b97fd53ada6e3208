"""Subscriptions that pulls carry with them: lite pull consumers and tools need no heartbeat to be served.

They are remembered for a while only to answer an administrator who asks what a group wants of a topic. No pull is served by them.
"""

from pocketmq.model.subscription import Subscription

EXPIRY_SECONDS = 600.0
MAX_CARRIED = 10_000
"""Pairs of group and topic that are remembered; beyond that, the one that was heard of longest ago is forgotten."""


class CarriedSubscriptions:
    """By group and topic, those that were heard of last at the end. Told the monotonic time."""

    def __init__(self, *, expiry: float = EXPIRY_SECONDS, max_carried: int = MAX_CARRIED) -> None:
        self._carried: dict[tuple[str, str], tuple[Subscription, float]] = {}
        self._expiry = expiry
        self._max_carried = max_carried

    def __len__(self) -> int:
        return len(self._carried)

    def note(self, group: str, subscription: Subscription, now: float) -> None:
        """A pull of this group came with a subscription."""
        key = group, subscription.topic
        self._carried.pop(key, None)
        self._carried[key] = subscription, now
        if len(self._carried) > self._max_carried:
            del self._carried[next(iter(self._carried))]

    def find(self, group: str, topic: str) -> Subscription | None:
        found = self._carried.get((group, topic))
        return found and found[0]

    def expire(self, now: float) -> None:
        """Forget those that nobody carried for too long."""
        for key, (_, noted) in list(self._carried.items()):
            if now - noted <= self._expiry:
                break
            del self._carried[key]

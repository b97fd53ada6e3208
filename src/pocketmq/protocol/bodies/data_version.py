"""Which state of a table somebody has seen."""

from pocketmq.protocol.bodies.body import Body
from pocketmq.protocol.header import Int64


class DataVersion(Body, frozen=True):
    """Equal in all three numbers means the same table. Time and counter both change, or a change may go unnoticed."""

    counter: Int64 = 0
    state_version: Int64 = 0
    timestamp: Int64 = 0

    def next_version(self, now_ms: int, state_version: int = 0) -> "DataVersion":
        """The version after a change that is made now."""
        return DataVersion(self.counter + 1, state_version, now_ms)

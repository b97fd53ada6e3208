"""A tally: numbers that only grow. Whoever handles messages keeps the tally of its topic or group at hand and adds to it."""


class Tally:
    """What went one way. A single message is two additions, to `count` and `bytes`; nothing else happens.

    `joined` are the messages that came along with another one in the same call, so that `calls` need not be counted:
    of a batch of five, or of a pull that found five, four are joined. `ms` is the time that the calls took, where that
    is measured. All of them change only together with `count`.
    """

    __slots__ = ("__weakref__", "bytes", "count", "joined", "ms")

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0
        self.joined = 0
        self.ms = 0.0

    @property
    def calls(self) -> int:
        return self.count - self.joined

    def add(self, other: "Tally") -> None:
        """Add what another one counted."""
        self.count += other.count
        self.bytes += other.bytes
        self.joined += other.joined
        self.ms += other.ms

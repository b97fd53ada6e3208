"""What an examination may be told: all that an administrator may, and from when on something counts as wrong."""

from pocketmq.client.administration.reach import AdminOptions, AdminSettings
from pocketmq.errors import InvalidSetting


class DoctorOptions(AdminOptions, total=False):
    """The keyword arguments of an examination; see `DoctorSettings`."""

    step_timeout_ms: int
    max_pull_age_ms: int
    max_handler_age_ms: int
    max_clock_skew_ms: int
    max_queue_wait_ms: int
    retention_used_percent: int


class DoctorSettings(AdminSettings, frozen=True, kw_only=True):
    """Beside what an administrator needs."""

    step_timeout_ms: int = 30_000
    """For one step, all its questions together; then it is unknown."""
    max_pull_age_ms: int = 120_000
    """A queue that its owner has not asked about for longer is not read. RocketMQ's own clients give up on it then, too."""
    max_handler_age_ms: int = 60_000
    """A message that is being handled for longer is stuck."""
    max_clock_skew_ms: int = 5_000
    """Brokers tell whole seconds only."""
    max_queue_wait_ms: int = 200
    """Requests that wait longer at a broker are refused as busy, unless it is told otherwise."""
    retention_used_percent: int = 80
    """A group whose oldest unread message has used up so much of the time that messages are kept is about to lose some."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.retention_used_percent > 100:
            raise InvalidSetting(f"retention_used_percent = {self.retention_used_percent} must be from 1 to 100")

"""What an examination carries from step to step: how the cluster is reached, and what earlier steps have learned.

What an examination may be told: all that an administrator may, and from when on something counts as wrong.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

from pocketmq.client.admin.groups import GroupState, Member
from pocketmq.client.admin.lag import GroupLag
from pocketmq.client.admin.reach import AdminOptions, AdminSettings, BrokerPlace, Reach
from pocketmq.client.cluster.instance import Instance, Surroundings
from pocketmq.errors import InvalidSetting
from pocketmq.net.address import Address
from pocketmq.protocol.bodies.routes import ClusterInfo
from pocketmq.protocol.bodies.running_info import ConsumerRunningInfo


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


class Visit:
    """One examination of a cluster, from one place."""

    def __init__(self, settings: DoctorSettings, around: Surroundings, topic: str | None, group: str | None) -> None:
        self.settings = settings
        self.around = around
        self.topic = topic
        self.group = group

        self.addresses: tuple[Address, ...] = ()
        self.cluster_infos: dict[Address, ClusterInfo] = {}
        """By name server."""
        self.refusals: list[str] = []
        """Where the account was turned away."""
        self.places: list[BrokerPlace] = []
        self.runtime: dict[BrokerPlace, Mapping[str, str]] = {}
        self.runtime_ms: dict[BrokerPlace, int] = {}
        """When each said so, by the clock of this machine."""
        self.broker_settings: dict[BrokerPlace, Mapping[str, str]] = {}
        self.topics: Sequence[str] = ()
        """The one that was asked for, or those that the group reads."""
        self.group_state: GroupState | None = None
        self.member_infos: dict[str, ConsumerRunningInfo] = {}
        """What members tell about themselves, by client id."""
        self.members_ms = 0
        """When they told."""
        self.silent: dict[str, str] = {}
        """Members that do not tell, and why."""
        self.lag: GroupLag | None = None

    @cached_property
    def reach(self) -> Reach:
        """How the cluster is asked. Nothing is asked yet; InvalidSetting names what can never work."""
        return Reach(Instance.join(self.settings, self.around), self.settings)

    async def leave(self) -> None:
        if "reach" in vars(self):
            await self.reach.instance.leave()

    @property
    def now_ms(self) -> int:
        return self.around.clock.now_ms()

    @property
    def masters(self) -> list[BrokerPlace]:
        return [place for place in self.places if place.is_master]

    @property
    def members(self) -> Sequence[Member]:
        return () if self.group_state is None else self.group_state.members

    def setting(self, place: BrokerPlace, name: str) -> str | None:
        """A setting of a broker; None when it does not tell."""
        return self.broker_settings.get(place, {}).get(name)

    def whole(self, place: BrokerPlace, name: str) -> int | None:
        """The same of a number."""
        text = self.setting(place, name) or ""
        return int(text) if text.isascii() and text.isdigit() else None

"""The context of one examination: its options, its connections to the cluster, and what earlier steps found."""

from collections.abc import Mapping, Sequence
from functools import cached_property

from pocketmq.client.admin.dead_letters import DeadLetterAdmin
from pocketmq.client.admin.groups import GroupAdmin, GroupState, Member
from pocketmq.client.admin.lag import GroupLag
from pocketmq.client.admin.offsets import OffsetAdmin
from pocketmq.client.admin.targets import AdminOptions, AdminSettings, BrokerAddress, Targets
from pocketmq.client.admin.topics import TopicAdmin
from pocketmq.client.cluster.instance import Dependencies, Instance
from pocketmq.errors import InvalidSetting
from pocketmq.net import Address
from pocketmq.protocol.bodies.clients import ConsumerRunningInfo


class DoctorOptions(AdminOptions, total=False):
    """The keyword arguments of an examination; see `DoctorSettings`."""

    step_timeout_ms: int
    max_pull_age_ms: int
    max_handler_age_ms: int
    max_clock_skew_ms: int
    max_queue_wait_ms: int
    retention_used_percent: int


class DoctorSettings(AdminSettings, frozen=True, kw_only=True):
    """The options of an administrator, and the limits from which a value is a problem."""

    step_timeout_ms: int = 30_000
    """The limit for one step with all its requests; the step is then unknown."""
    max_pull_age_ms: int = 120_000
    """A queue is not read if its owner sent the last pull longer ago. RocketMQ's clients use the same limit."""
    max_handler_age_ms: int = 60_000
    """A message handler is stuck if it runs for longer."""
    max_clock_skew_ms: int = 5_000
    """The largest difference between the clocks of a broker and of this machine. Brokers report whole seconds."""
    max_queue_wait_ms: int = 200
    """The longest wait of a request in a broker's queue. By default, brokers reject it then as busy."""
    retention_used_percent: int = 80
    """A group is about to lose messages if its oldest unread message has used this part of the retention time."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.retention_used_percent > 100:
            raise InvalidSetting(f"retention_used_percent = {self.retention_used_percent} must be from 1 to 100")


class DoctorContext:
    """One examination of a cluster."""

    def __init__(
        self, settings: DoctorSettings, dependencies: Dependencies, topic: str | None, group: str | None
    ) -> None:
        self.settings = settings
        self.dependencies = dependencies
        self.topic = topic
        self.group = group
        self.groups = GroupAdmin(self)
        self.offsets = OffsetAdmin(self)
        self.dead_letters = DeadLetterAdmin(self)
        self.topic_admin = TopicAdmin(self)

        self.addresses: tuple[Address, ...] = ()
        self.registered: dict[Address, set[str]] = {}
        """The names of the registered brokers, by name server."""
        self.refusals: list[str] = []
        """Servers that rejected the account."""
        self.brokers: list[BrokerAddress] = []
        self.runtime: dict[BrokerAddress, Mapping[str, str]] = {}
        self.runtime_ms: dict[BrokerAddress, int] = {}
        """When each broker answered, by the clock of this machine."""
        self.broker_settings: dict[BrokerAddress, Mapping[str, str]] = {}
        self.topics: Sequence[str] = ()
        """The topic of the examination, or the topics of its group."""
        self.group_state: GroupState | None = None
        self.member_infos: dict[str, ConsumerRunningInfo] = {}
        """The state that members report, by client id."""
        self.members_ms = 0
        """When members were requested to report."""
        self.silent: dict[str, str] = {}
        """Members that did not report, with the error."""
        self.lag: GroupLag | None = None

    @cached_property
    def targets(self) -> Targets:
        """The connection to the cluster. InvalidSetting if a setting can never work; it sends no request yet."""
        return Targets(Instance.join(self.settings, self.dependencies), self.settings)

    async def leave(self) -> None:
        if "targets" in vars(self):
            await self.targets.instance.leave()

    @property
    def now_ms(self) -> int:
        return self.dependencies.clock.now_ms()

    @property
    def masters(self) -> list[BrokerAddress]:
        return [broker for broker in self.brokers if broker.is_master]

    @property
    def members(self) -> Sequence[Member]:
        return () if self.group_state is None else self.group_state.members

    def setting(self, broker: BrokerAddress, name: str) -> str | None:
        """A setting of a broker; None if the broker did not report it."""
        return self.broker_settings.get(broker, {}).get(name)

    def number_setting(self, broker: BrokerAddress, name: str) -> int | None:
        text = self.setting(broker, name) or ""
        return int(text) if text.isascii() and text.isdigit() else None

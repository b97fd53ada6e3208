"""What an examination carries from step to step: how the cluster is reached, and what earlier steps have learned."""

from collections.abc import Mapping, Sequence

from pocketmq.client.administration.cluster import ClusterAdmin
from pocketmq.client.administration.dead_letters import DeadLetterAdmin
from pocketmq.client.administration.groups import GroupAdmin, GroupState, Member
from pocketmq.client.administration.lag import GroupLag
from pocketmq.client.administration.offsets import OffsetAdmin
from pocketmq.client.administration.reach import BrokerPlace, Reach
from pocketmq.client.administration.topics import TopicAdmin
from pocketmq.client.instance import Instance, Surroundings
from pocketmq.doctor.settings import DoctorSettings
from pocketmq.net.address import Address
from pocketmq.protocol.bodies.routes import ClusterInfo
from pocketmq.protocol.bodies.running_info import ConsumerRunningInfo


class Visit:
    """One examination of a cluster, from one place."""

    def __init__(self, settings: DoctorSettings, around: Surroundings, topic: str | None, group: str | None) -> None:
        self.settings = settings
        self.around = around
        self.topic = topic
        self.group = group
        self._instance: Instance | None = None

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

    def arrive(self) -> None:
        """Be ready to ask. Nothing is asked yet; InvalidSetting names what can never work."""
        self._instance = Instance.join(self.settings, self.around)
        self.reach = Reach(self._instance, self.settings)

    async def leave(self) -> None:
        if self._instance is not None:
            await self._instance.leave()

    @property
    def now_ms(self) -> int:
        return self.around.clock.now_ms()

    @property
    def masters(self) -> list[BrokerPlace]:
        return [place for place in self.places if place.is_master]

    @property
    def members(self) -> Sequence[Member]:
        return () if self.group_state is None else self.group_state.members

    @property
    def cluster(self) -> ClusterAdmin:
        return ClusterAdmin(self.reach)

    @property
    def topic_admin(self) -> TopicAdmin:
        return TopicAdmin(self.reach)

    @property
    def group_admin(self) -> GroupAdmin:
        return GroupAdmin(self.reach)

    @property
    def offsets(self) -> OffsetAdmin:
        return OffsetAdmin(self.reach)

    @property
    def dead_letters(self) -> DeadLetterAdmin:
        return DeadLetterAdmin(self.reach)

    def setting(self, place: BrokerPlace, name: str) -> str | None:
        """A setting of a broker; None when it does not tell."""
        return self.broker_settings.get(place, {}).get(name)

    def whole(self, place: BrokerPlace, name: str) -> int | None:
        """The same of a number."""
        text = self.setting(place, name) or ""
        return int(text) if text.isascii() and text.isdigit() else None

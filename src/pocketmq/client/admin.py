"""The administrator's client: everything that can be asked of a cluster and changed in it. `blocking_admin.Admin` is its blocking face.

    async with AsyncAdmin("127.0.0.1:9876") as admin:
        await admin.topics.create("orders", queues=8)
        lag = await admin.offsets.lag("billing")            # lag.messages, lag.time_ms; None when nobody knows
        letters = await admin.dead_letters.read("billing")

    cluster        brokers, what they say about themselves, their settings
    topics         names, queues, offsets; create, alter, delete
    groups         names, members, who owns which queue; create, alter, delete
    offsets        where groups are, lag, reset, clone
    messages       by id, key, place, time; traces; to a member once more
    dead_letters   count, read, resend
    transactions   those that are undecided
    delays         messages that are not due yet
    name_servers   what they remember, their settings

It works with brokers of PocketMQ and of Apache RocketMQ 4.9 and 5.x.
"""

from collections.abc import Sequence
from typing import Unpack

from pocketmq.client.administration.cluster import ClusterAdmin
from pocketmq.client.administration.dead_letters import DeadLetterAdmin
from pocketmq.client.administration.delays import DelayAdmin
from pocketmq.client.administration.groups import GroupAdmin
from pocketmq.client.administration.messages import MessageAdmin
from pocketmq.client.administration.name_servers import NameServerAdmin
from pocketmq.client.administration.offsets import OffsetAdmin
from pocketmq.client.administration.reach import AdminOptions, AdminSettings, Reach
from pocketmq.client.administration.topics import TopicAdmin
from pocketmq.client.administration.transactions import TransactionAdmin
from pocketmq.client.instance import Instance, Surroundings
from pocketmq.client.life import Living, State
from pocketmq.client.settings import settings_of


class AsyncAdmin(Living):
    """Asks and changes a cluster. `name_servers` and all other options are those of `AdminSettings`."""

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        surroundings: Surroundings | None = None,
        **options: Unpack[AdminOptions],
    ) -> None:
        super().__init__("admin")
        self._settings = settings_of(AdminSettings, name_servers, options)
        self._around = surroundings or Surroundings()
        self._instance: Instance
        self._reach: Reach

    async def start(self) -> None:
        """Be ready. Nothing is asked of any server yet, so it does not fail when none is there."""
        self._require_new()
        self._instance = Instance.join(self._settings, self._around)
        self._reach = Reach(self._instance, self._settings)
        self._state = State.RUNNING

    async def _end(self) -> None:
        await self._instance.leave()

    @property
    def settings(self) -> AdminSettings:
        return self._settings

    @property
    def cluster(self) -> ClusterAdmin:
        return ClusterAdmin(self._running())

    @property
    def topics(self) -> TopicAdmin:
        return TopicAdmin(self._running())

    @property
    def groups(self) -> GroupAdmin:
        return GroupAdmin(self._running())

    @property
    def offsets(self) -> OffsetAdmin:
        return OffsetAdmin(self._running())

    @property
    def messages(self) -> MessageAdmin:
        return MessageAdmin(self._running())

    @property
    def dead_letters(self) -> DeadLetterAdmin:
        return DeadLetterAdmin(self._running())

    @property
    def transactions(self) -> TransactionAdmin:
        return TransactionAdmin(self._running())

    @property
    def delays(self) -> DelayAdmin:
        return DelayAdmin(self._running())

    @property
    def name_servers(self) -> NameServerAdmin:
        return NameServerAdmin(self._running())

    def _running(self) -> Reach:
        self._require_running()
        return self._reach

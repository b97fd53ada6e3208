"""The administrator's clients: `AsyncAdmin`, and `Admin` for code that does not await.

    async with AsyncAdmin("127.0.0.1:9876") as admin:
        await admin.topics.create("orders", queues=8)
        lag = await admin.offsets.lag("billing")            # lag.messages, lag.time_ms; None if unknown
        letters = await admin.dead_letters.read("billing")

    cluster        brokers: list, state, statistics, settings
    topics         names, queues; create, alter, delete
    groups         names, members, owners of queues; create, alter, delete
    offsets        committed offsets, lag; reset, clone
    messages       by id, key, offset, time; traces; consume again
    dead_letters   count, read, resend
    transactions   undecided transactions: list, decide
    delays         delayed messages: list, recall
    name_servers   key-value configuration, order configuration, settings

`Admin` has the same methods, which block:

    with Admin("127.0.0.1:9876") as admin:
        admin.topics.create("orders", queues=8)
        print(admin.offsets.lag("billing").messages)

Both work with brokers of PocketMQ and of Apache RocketMQ 4.9 and 5.x.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar, Unpack

from pocketmq.client.admin.cluster import ClusterAdmin, NameServerAdmin
from pocketmq.client.admin.dead_letters import DeadLetterAdmin
from pocketmq.client.admin.delays import DelayAdmin
from pocketmq.client.admin.groups import GroupAdmin
from pocketmq.client.admin.messages import MessageAdmin
from pocketmq.client.admin.offsets import OffsetAdmin
from pocketmq.client.admin.targets import AdminClient, AdminOptions, AdminSettings, Targets
from pocketmq.client.admin.topics import TopicAdmin
from pocketmq.client.admin.transactions import TransactionAdmin
from pocketmq.client.blocking import BlockingClient, blocking
from pocketmq.client.cluster.instance import Dependencies, Instance
from pocketmq.client.lifecycle import AsyncClient, State
from pocketmq.client.settings import settings_of


class AsyncAdmin(AsyncClient):
    """Queries and changes a cluster. The options are those of `AdminSettings`."""

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        dependencies: Dependencies | None = None,
        **options: Unpack[AdminOptions],
    ) -> None:
        super().__init__("admin")
        self._settings = settings_of(AdminSettings, name_servers, options)
        self._dependencies = dependencies or Dependencies()
        self._targets: Targets | None = None
        self.cluster = ClusterAdmin(self)
        self.topics = TopicAdmin(self)
        self.groups = GroupAdmin(self)
        self.offsets = OffsetAdmin(self)
        self.messages = MessageAdmin(self)
        self.dead_letters = DeadLetterAdmin(self)
        self.transactions = TransactionAdmin(self)
        self.delays = DelayAdmin(self)
        self.name_servers = NameServerAdmin(self)

    async def start(self) -> None:
        """Start without a request to any server, so that unreachable servers do not matter yet."""
        self._require_new()
        self._targets = Targets(Instance.join(self._settings, self._dependencies), self._settings)
        self._state = State.RUNNING

    async def _end(self) -> None:
        assert self._targets is not None, "it was started"
        await self._targets.instance.leave()

    @property
    def settings(self) -> AdminSettings:
        return self._settings

    @property
    def targets(self) -> Targets:
        """What all operations share. Raises WrongState unless the administrator runs."""
        self._require_running()
        assert self._targets is not None, "made by the start"
        return self._targets


F = TypeVar("F")
T = TypeVar("T")


class _Operations(Generic[F]):
    """Operations of one kind, run in the thread of the client."""

    def __init__(self, admin: "Admin", kind: Callable[[AdminClient], F]) -> None:
        self._admin = admin
        self._kind = kind

    def core(self) -> F:
        return self._kind(self._admin.core())

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._admin.call(work)


class Cluster(_Operations[ClusterAdmin]):
    """See `ClusterAdmin`."""

    brokers = blocking(ClusterAdmin.brokers)
    clusters = blocking(ClusterAdmin.clusters)
    describe = blocking(ClusterAdmin.describe)
    runtime_info = blocking(ClusterAdmin.runtime_info)
    settings = blocking(ClusterAdmin.settings)
    change_settings = blocking(ClusterAdmin.change_settings)
    statistic = blocking(ClusterAdmin.statistic)
    producers = blocking(ClusterAdmin.producers)
    all_producers = blocking(ClusterAdmin.all_producers)
    stop_writes = blocking(ClusterAdmin.stop_writes)
    allow_writes = blocking(ClusterAdmin.allow_writes)
    clean_up = blocking(ClusterAdmin.clean_up)
    export_leases = blocking(ClusterAdmin.export_leases)


class Topics(_Operations[TopicAdmin]):
    """See `TopicAdmin`."""

    names = blocking(TopicAdmin.names)
    configs = blocking(TopicAdmin.configs)
    queues = blocking(TopicAdmin.queues)
    queues_of_many = blocking(TopicAdmin.queues_of_many)
    describe = blocking(TopicAdmin.describe)
    exists = blocking(TopicAdmin.exists)
    readers = blocking(TopicAdmin.readers)
    create = blocking(TopicAdmin.create)
    alter = blocking(TopicAdmin.alter)
    delete = blocking(TopicAdmin.delete)


class Groups(_Operations[GroupAdmin]):
    """See `GroupAdmin`."""

    names = blocking(GroupAdmin.names)
    configs = blocking(GroupAdmin.configs)
    describe = blocking(GroupAdmin.describe)
    members = blocking(GroupAdmin.members)
    members_of_many = blocking(GroupAdmin.members_of_many)
    running_info = blocking(GroupAdmin.running_info)
    owners = blocking(GroupAdmin.owners)
    create = blocking(GroupAdmin.create)
    alter = blocking(GroupAdmin.alter)
    set_mode = blocking(GroupAdmin.set_mode)
    modes = blocking(GroupAdmin.modes)
    delete = blocking(GroupAdmin.delete)


class Offsets(_Operations[OffsetAdmin]):
    """See `OffsetAdmin`."""

    committed = blocking(OffsetAdmin.committed)
    lag = blocking(OffsetAdmin.lag)
    all_lags = blocking(OffsetAdmin.all_lags)
    reset = blocking(OffsetAdmin.reset)
    clone = blocking(OffsetAdmin.clone)


class Messages(_Operations[MessageAdmin]):
    """See `MessageAdmin`."""

    by_offset_id = blocking(MessageAdmin.by_offset_id)
    by_id = blocking(MessageAdmin.by_id)
    by_key = blocking(MessageAdmin.by_key)
    in_queue = blocking(MessageAdmin.in_queue)
    in_time = blocking(MessageAdmin.in_time)
    trace = blocking(MessageAdmin.trace)
    passed_by = blocking(MessageAdmin.passed_by)
    consume_directly = blocking(MessageAdmin.consume_directly)
    send_back = blocking(MessageAdmin.send_back)


class DeadLetters(_Operations[DeadLetterAdmin]):
    """See `DeadLetterAdmin`."""

    counts = blocking(DeadLetterAdmin.counts)
    count = blocking(DeadLetterAdmin.count)
    read = blocking(DeadLetterAdmin.read)
    ranges = blocking(DeadLetterAdmin.ranges)
    in_queue = blocking(DeadLetterAdmin.in_queue)
    resend = blocking(DeadLetterAdmin.resend)
    drop = blocking(DeadLetterAdmin.drop)


class Transactions(_Operations[TransactionAdmin]):
    """See `TransactionAdmin`."""

    undecided = blocking(TransactionAdmin.undecided)
    commit = blocking(TransactionAdmin.commit)
    roll_back = blocking(TransactionAdmin.roll_back)
    given_up = blocking(TransactionAdmin.given_up)
    check_again = blocking(TransactionAdmin.check_again)


class Delays(_Operations[DelayAdmin]):
    """See `DelayAdmin`."""

    waiting = blocking(DelayAdmin.waiting)
    find_by_handle = blocking(DelayAdmin.find_by_handle)
    cancel = blocking(DelayAdmin.cancel)
    cancel_by_handle = blocking(DelayAdmin.cancel_by_handle)


class NameServers(_Operations[NameServerAdmin]):
    """See `NameServerAdmin`."""

    values = blocking(NameServerAdmin.values)
    value = blocking(NameServerAdmin.value)
    put = blocking(NameServerAdmin.put)
    delete = blocking(NameServerAdmin.delete)
    order = blocking(NameServerAdmin.order)
    put_order = blocking(NameServerAdmin.put_order)
    delete_order = blocking(NameServerAdmin.delete_order)
    settings = blocking(NameServerAdmin.settings)
    change_settings = blocking(NameServerAdmin.change_settings)


class Admin(BlockingClient[AsyncAdmin]):
    """Queries and changes a cluster. The options are those of `AdminSettings`. Threads may share it."""

    def __init__(self, name_servers: str | Sequence[str] | None = None, **options: Unpack[AdminOptions]) -> None:
        super().__init__(lambda: AsyncAdmin(name_servers, **options), "admin")
        self.cluster = Cluster(self, ClusterAdmin)
        self.topics = Topics(self, TopicAdmin)
        self.groups = Groups(self, GroupAdmin)
        self.offsets = Offsets(self, OffsetAdmin)
        self.messages = Messages(self, MessageAdmin)
        self.dead_letters = DeadLetters(self, DeadLetterAdmin)
        self.transactions = Transactions(self, TransactionAdmin)
        self.delays = Delays(self, DelayAdmin)
        self.name_servers = NameServers(self, NameServerAdmin)

    @property
    def settings(self) -> AdminSettings:
        return self._core.settings

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
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack

from pocketmq.client.admin.cluster import ClusterAdmin, NameServerAdmin
from pocketmq.client.admin.dead_letters import DeadLetterAdmin
from pocketmq.client.admin.delays import DelayAdmin
from pocketmq.client.admin.groups import GroupAdmin
from pocketmq.client.admin.messages import MessageAdmin
from pocketmq.client.admin.offsets import OffsetAdmin
from pocketmq.client.admin.targets import AdminOptions, AdminSettings, Targets
from pocketmq.client.admin.topics import TopicAdmin
from pocketmq.client.admin.transactions import TransactionAdmin
from pocketmq.client.blocking import BlockingClient
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
        self._instance: Instance
        self._targets: Targets

    async def start(self) -> None:
        """Start without a request to any server, so that unreachable servers do not matter yet."""
        self._require_new()
        self._instance = Instance.join(self._settings, self._dependencies)
        self._targets = Targets(self._instance, self._settings)
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

    def _running(self) -> Targets:
        self._require_running()
        return self._targets


F = TypeVar("F")
P = ParamSpec("P")
R = TypeVar("R")


class _Operations(Generic[F]):
    """Operations on one kind of thing, run in the thread of the client."""

    def __init__(self, admin: "Admin", operations: F) -> None:
        self._admin = admin
        self._operations = operations


def _blocking(
    method: Callable[Concatenate[F, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[_Operations[F], P], R]:
    """The blocking form of an async method."""

    @wraps(method)
    def call(self: _Operations[F], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._admin.call(method(self._operations, *args, **kwargs))

    return call


class Cluster(_Operations[ClusterAdmin]):
    """See `ClusterAdmin`."""

    brokers = _blocking(ClusterAdmin.brokers)
    clusters = _blocking(ClusterAdmin.clusters)
    describe = _blocking(ClusterAdmin.describe)
    runtime_info = _blocking(ClusterAdmin.runtime_info)
    settings = _blocking(ClusterAdmin.settings)
    change_settings = _blocking(ClusterAdmin.change_settings)
    statistic = _blocking(ClusterAdmin.statistic)
    producers = _blocking(ClusterAdmin.producers)
    all_producers = _blocking(ClusterAdmin.all_producers)
    stop_writes = _blocking(ClusterAdmin.stop_writes)
    allow_writes = _blocking(ClusterAdmin.allow_writes)
    clean_up = _blocking(ClusterAdmin.clean_up)


class Topics(_Operations[TopicAdmin]):
    """See `TopicAdmin`."""

    names = _blocking(TopicAdmin.names)
    configs = _blocking(TopicAdmin.configs)
    queues = _blocking(TopicAdmin.queues)
    queues_of_many = _blocking(TopicAdmin.queues_of_many)
    describe = _blocking(TopicAdmin.describe)
    exists = _blocking(TopicAdmin.exists)
    readers = _blocking(TopicAdmin.readers)
    create = _blocking(TopicAdmin.create)
    alter = _blocking(TopicAdmin.alter)
    delete = _blocking(TopicAdmin.delete)


class Groups(_Operations[GroupAdmin]):
    """See `GroupAdmin`."""

    names = _blocking(GroupAdmin.names)
    configs = _blocking(GroupAdmin.configs)
    describe = _blocking(GroupAdmin.describe)
    members = _blocking(GroupAdmin.members)
    members_of_many = _blocking(GroupAdmin.members_of_many)
    running_info = _blocking(GroupAdmin.running_info)
    owners = _blocking(GroupAdmin.owners)
    create = _blocking(GroupAdmin.create)
    alter = _blocking(GroupAdmin.alter)
    delete = _blocking(GroupAdmin.delete)


class Offsets(_Operations[OffsetAdmin]):
    """See `OffsetAdmin`."""

    committed = _blocking(OffsetAdmin.committed)
    lag = _blocking(OffsetAdmin.lag)
    all_lags = _blocking(OffsetAdmin.all_lags)
    reset = _blocking(OffsetAdmin.reset)
    clone = _blocking(OffsetAdmin.clone)


class Messages(_Operations[MessageAdmin]):
    """See `MessageAdmin`."""

    by_offset_id = _blocking(MessageAdmin.by_offset_id)
    by_id = _blocking(MessageAdmin.by_id)
    by_key = _blocking(MessageAdmin.by_key)
    in_queue = _blocking(MessageAdmin.in_queue)
    in_time = _blocking(MessageAdmin.in_time)
    trace = _blocking(MessageAdmin.trace)
    passed_by = _blocking(MessageAdmin.passed_by)
    consume_directly = _blocking(MessageAdmin.consume_directly)
    send_back = _blocking(MessageAdmin.send_back)


class DeadLetters(_Operations[DeadLetterAdmin]):
    """See `DeadLetterAdmin`."""

    counts = _blocking(DeadLetterAdmin.counts)
    count = _blocking(DeadLetterAdmin.count)
    read = _blocking(DeadLetterAdmin.read)
    ranges = _blocking(DeadLetterAdmin.ranges)
    in_queue = _blocking(DeadLetterAdmin.in_queue)
    resend = _blocking(DeadLetterAdmin.resend)
    drop = _blocking(DeadLetterAdmin.drop)


class Transactions(_Operations[TransactionAdmin]):
    """See `TransactionAdmin`."""

    undecided = _blocking(TransactionAdmin.undecided)
    commit = _blocking(TransactionAdmin.commit)
    roll_back = _blocking(TransactionAdmin.roll_back)
    given_up = _blocking(TransactionAdmin.given_up)
    check_again = _blocking(TransactionAdmin.check_again)


class Delays(_Operations[DelayAdmin]):
    """See `DelayAdmin`."""

    waiting = _blocking(DelayAdmin.waiting)
    find_by_handle = _blocking(DelayAdmin.find_by_handle)
    cancel = _blocking(DelayAdmin.cancel)
    cancel_by_handle = _blocking(DelayAdmin.cancel_by_handle)


class NameServers(_Operations[NameServerAdmin]):
    """See `NameServerAdmin`."""

    values = _blocking(NameServerAdmin.values)
    value = _blocking(NameServerAdmin.value)
    put = _blocking(NameServerAdmin.put)
    delete = _blocking(NameServerAdmin.delete)
    order = _blocking(NameServerAdmin.order)
    put_order = _blocking(NameServerAdmin.put_order)
    delete_order = _blocking(NameServerAdmin.delete_order)
    settings = _blocking(NameServerAdmin.settings)
    change_settings = _blocking(NameServerAdmin.change_settings)


class Admin(BlockingClient[AsyncAdmin]):
    """Queries and changes a cluster. The options are those of `AdminSettings`. Threads may share it."""

    def __init__(self, name_servers: str | Sequence[str] | None = None, **options: Unpack[AdminOptions]) -> None:
        super().__init__(lambda: AsyncAdmin(name_servers, **options), "admin")

    @property
    def settings(self) -> AdminSettings:
        return self._core.settings

    @property
    def cluster(self) -> Cluster:
        return Cluster(self, self.core().cluster)

    @property
    def topics(self) -> Topics:
        return Topics(self, self.core().topics)

    @property
    def groups(self) -> Groups:
        return Groups(self, self.core().groups)

    @property
    def offsets(self) -> Offsets:
        return Offsets(self, self.core().offsets)

    @property
    def messages(self) -> Messages:
        return Messages(self, self.core().messages)

    @property
    def dead_letters(self) -> DeadLetters:
        return DeadLetters(self, self.core().dead_letters)

    @property
    def transactions(self) -> Transactions:
        return Transactions(self, self.core().transactions)

    @property
    def delays(self) -> Delays:
        return Delays(self, self.core().delays)

    @property
    def name_servers(self) -> NameServers:
        return NameServers(self, self.core().name_servers)

"""Every limit, interval and switch of a broker, with RocketMQ's defaults where it has them."""

from pathlib import Path

import msgspec

from pocketmq.access.settings import AuthenticationSettings, check_listen_addresses
from pocketmq.broker.replication_settings import ReplicationSettings, Role, check_role, check_who_may_replicate
from pocketmq.clock import STEP_CONFIRM_MS
from pocketmq.codes import Perm
from pocketmq.errors import InvalidSetting
from pocketmq.metrics.page import MetricsSettings
from pocketmq.model import parse_broker, parse_topic
from pocketmq.model.setting_keys import InUse, require_positive
from pocketmq.net import Address, ClientTlsFiles, ServerTlsFiles, UnfinishedLimits
from pocketmq.protocol.signing import Credentials
from pocketmq.store.settings import MIB, StoreSettings

DEFAULT_PORT = 10911
DEFAULT_FOLDER = Path("pocketmq-data")
MAX_QUEUES = 65_536
"""Limit on the queues of a topic; many requests iterate over all of them."""
COARSEST_MS = 60_000
"""Limit on timer.precision_ms."""
LONGEST_DELAY_S = 100 * 365 * 24 * 3600
"""Limit on timer.max_delay_s: later times could never be delivered."""


class FlowSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How long requests may wait for the broker, and how many; see `flow`."""

    turn_budget_ms: int = 20
    """A turn that takes longer defers its remaining requests, so that other connections are served, in ms."""
    sweep_interval_ms: int = 10
    """Interval between checks of waiting requests, in ms."""
    send_wait_ms: int = 200
    """A send that waited longer is refused with SYSTEM_BUSY, in ms."""
    pull_wait_ms: int = 5_000
    """A pull or administration request that waited longer is refused with SYSTEM_BUSY, in ms."""
    heartbeat_wait_ms: int = 31_000
    """A heartbeat that waited longer is refused with SYSTEM_BUSY, in ms."""
    transaction_wait_ms: int = 3_000
    """The end of a transaction that waited longer is refused with SYSTEM_BUSY, in ms."""
    max_waiting_sends: int = 10_000
    """Limit on waiting sends. One more is refused."""
    max_waiting_pulls: int = 100_000
    """Limit on waiting pulls. One more is refused."""
    max_waiting_heartbeats: int = 50_000
    """Limit on waiting heartbeats. One more is refused."""
    max_waiting_transactions: int = 100_000
    """Limit on waiting ends of transactions. One more is refused."""
    lease_wait_ms: int = 3_000
    """A pop, an ack or a change of a lease that waited longer is refused with SYSTEM_BUSY, in ms."""
    max_waiting_leases: int = 100_000
    """Limit on waiting pops, acks and changes of leases. One more is refused."""
    max_waiting_bytes: int = 64 * MIB
    """Limit on the bytes of all waiting requests together."""
    page_cache_busy_ms: int = 1_000
    """If the log takes no write for this long, sends are refused at once, in ms."""
    max_held_pulls: int = 100_000
    """Limit on held pulls (long polling). One more is answered at once."""

    def __post_init__(self) -> None:
        require_positive("flow", self)


class TransactionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When undecided transactions are checked; see `transactions`."""

    check_interval_ms: int = 30_000
    """Interval between scans for undecided transactions, in ms."""
    timeout_ms: int = 6_000
    """Age at which a half message is checked for the first time, in ms, unless the message names another."""
    max_checks: int = 15
    """Number of checks before the broker gives a transaction up."""
    op_batch_bytes: int = 4_096
    """Decisions are written to the log together: when they reach this many bytes …"""
    op_batch_ms: int = 3_000
    """… or after this time, in ms."""
    max_run_ms: int = 50
    """Time limit of one step of checks, in ms."""

    def __post_init__(self) -> None:
        require_positive("transaction", self)


class TimerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Messages with a delivery time of their own; see `timers`."""

    enabled: bool = True
    """Accept timed messages: those with a delivery time of their own."""
    precision_ms: int = 1_000
    """How late a timed message may be, in ms."""
    max_delay_s: int = 3 * 24 * 3600
    """The longest delay of a timed message, in seconds, up to a hundred years."""
    recall_enabled: bool = True
    """Allow producers to recall timed messages."""

    def __post_init__(self) -> None:
        require_positive("timer", self)
        if self.precision_ms > COARSEST_MS:
            raise InvalidSetting(f"timer setting precision_ms = {self.precision_ms} must be at most {COARSEST_MS}")
        if self.max_delay_s > LONGEST_DELAY_S:
            raise InvalidSetting(f"timer setting max_delay_s = {self.max_delay_s} must be at most {LONGEST_DELAY_S}")


class PopSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Leases of messages; see `pop`."""

    max_leases: int = 200_000
    """Limit on leases in memory, of a pop in one queue each, about 1 KiB. Further ones are found in the log when they end."""
    max_waiting_per_queue: int = 1_024
    """Limit on held pops of a group in one queue, or in all queues of a topic. One more is answered with POLLING_FULL."""
    max_waiting: int = 100_000
    """Limit on held pops. One more is answered with POLLING_FULL."""
    retry_percent: int = 20
    """How many of a hundred pops read messages that return before new ones."""
    retry_topic_v2: bool = False
    """Store messages that return in `%RETRY%group+topic` instead of `%RETRY%group_topic`."""
    read_retry_topic_v1: bool = True
    """With `enableRetryTopicV2`, every other pop also reads `%RETRY%group_topic`."""
    begin_at_first_in_memory: bool = True
    """A group that is new to a queue, and asks for its end, begins at the first message while that is in memory."""
    limits_in_flight: bool = False
    """Pop nothing from a queue in which a group has `popInflightMessageThreshold` messages in flight."""
    max_in_flight: int = 10_000
    """That limit."""
    assigns_queues: bool = True
    """Divide queues among the members that ask for an assignment. False: each gets all."""
    default_mode: str = "PULL"
    """`PULL` or `POP`: how groups consume that let the broker assign queues, unless an administrator chose a mode."""
    default_share: int = 0
    """With how many other members a member shares its queues in mode POP. 0: with all."""

    def __post_init__(self) -> None:
        require_positive("pop", self, may_be_zero=("retry_percent", "default_share"))
        if self.default_mode not in ("PULL", "POP"):
            raise InvalidSetting(f"pop setting default_mode = {self.default_mode!r} must be PULL or POP")
        if self.retry_percent > 100:
            raise InvalidSetting(f"pop setting retry_percent = {self.retry_percent} must be at most 100")


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a broker. `setting_keys` has RocketMQ's names, and which of them may change at run time."""

    # identity
    cluster: str = "DefaultCluster"
    """The name of the cluster."""
    broker_name: str = "broker-a"
    """The name of the broker."""
    broker_id: int = 0
    """The id of the broker; 0 is the master, slaves have others."""
    role: Role = Role.ASYNC_MASTER
    """ASYNC_MASTER; SYNC_MASTER: answer sends when slaves have them; or SLAVE: copy the log of a master."""
    region: str = "DefaultRegion"
    """The region that is written into each message."""

    # addresses and store
    host: str = "127.0.0.1"
    """The address that the broker listens on."""
    port: int = DEFAULT_PORT
    """The port that the broker listens on. 0: any free port."""
    advertised_host: str | None = None
    """The address that clients use, if it differs from `bindAddress`: in a container, or behind a NAT. None: the
    address by which the broker reaches its first name server."""
    advertised_port: int | None = None
    """The port that clients use, if it differs from `listenPort`."""
    vip_channel: bool = True
    """Listen also two ports below, where older clients send."""
    name_servers: tuple[Address, ...] = ()
    """The name servers to register with, separated by `;`."""
    open_to_the_network_without_authentication: bool = False
    """Required to listen without `accounts` where other machines can connect: every client may then read, send and administrate."""
    store: StoreSettings = StoreSettings(folder=DEFAULT_FOLDER)

    # access, and registration with name servers
    accounts: Path | None = None
    """The file of accounts. With it, every request must be signed. The broker rereads it when it changes."""
    authentication: AuthenticationSettings = AuthenticationSettings()
    credentials: Credentials | None = None
    """`{"accessKey":"…","secretKey":"…"}`: sign registrations. Administrators see it without the secret."""
    tls: ServerTlsFiles = ServerTlsFiles()
    name_server_tls: ClientTlsFiles = ClientTlsFiles()

    # permissions and limits
    permission: int = Perm.READ_WRITE
    """2 write, 4 read, 6 both, 0 neither. Clients learn it from name servers."""
    auto_create_topic: bool = True
    """A send to an unknown topic creates it. `pocketmq broker` sets false."""
    auto_create_group: bool = True
    """Consumers create their group."""
    default_queues: int = 8
    """Queues of a topic that a send creates."""
    max_topics: int = 100_000
    """Limit on topics that sends create. Administrators may create more."""
    max_retry_topics: int = 50_000
    """Limit on retry and dead-letter topics. Heartbeats create retry topics until half of it is in use; above that, the
    first message that is sent back creates one."""
    max_groups: int = 100_000
    """Limit on groups that consumers create. Administrators may create more."""
    property_filter: bool = True
    """Accept SQL92 subscriptions."""
    lite_pull: bool = True
    """Answer lite pulls (request 361)."""
    transactions_rejected: bool = False
    """Refuse half messages."""
    trace_topic: bool = False
    """Create RMQ_SYS_TRACE_TOPIC, the topic of trace records."""
    trace_on: bool = True
    """Report to clients that they may write trace records."""

    # pulling
    long_polling: bool = True
    """Hold a pull that finds no message for as long as it requests."""
    short_polling_ms: int = 1_000
    """How long such a pull is held without long polling, in ms."""
    hold_check_ms: int = 5_000
    """A held pull whose queue only got messages that its filter excludes is answered after this time, with a later offset."""
    slave_read: bool = False
    """Suggest another broker of the same name to consumers that are far behind."""

    # clients
    client_expiry_ms: int = 120_000
    """A client without a heartbeat for this long is removed from its groups, in ms."""
    lock_lease_ms: int = 60_000
    """How long the lock of a queue is valid without renewal, in ms."""
    expiry_scan_ms: int = 10_000
    notify_changes: bool = True
    """Notify the members of a group at once when its membership changes."""
    client_call_ms: int = 10_000
    """How long a client may take to answer a request that the broker forwards, in ms."""
    store_reply_messages: bool = True
    """Store replies of request-reply in the log."""
    server_side_reset: bool = True
    """The broker itself resets the offsets of a group. False: it asks the members to do it."""

    # saving and registering
    save_interval_ms: int = 5_000
    """Interval between saves of consumer offsets, in ms."""
    progress_save_interval_ms: int = 1_000
    """Interval between saves of the delivery state of delayed and timed messages, in ms. After a crash, messages that
    were delivered since the last save are delivered again."""
    register_interval_ms: int = 30_000
    """Interval between registrations with name servers, in ms, from 10000 to 60000."""
    register_timeout_ms: int = 6_000
    """The timeout of a registration, in ms."""
    route_wait_ms: int = 1_000
    """The first send to a new topic, and its creation, wait this long for the answers of the name servers, in ms."""

    clock_step_confirm_ms: int = STEP_CONFIRM_MS
    """The broker follows a forward step of the wall clock after it lasted this long, in ms."""
    delay_poll_ms: int = 100
    tick_ms: int = 10
    """Interval of the store's tick, in ms."""

    metrics: MetricsSettings = MetricsSettings()
    replication: ReplicationSettings = ReplicationSettings()
    flow: FlowSettings = FlowSettings()
    transaction: TransactionSettings = TransactionSettings()
    timer: TimerSettings = TimerSettings()
    pop: PopSettings = PopSettings()

    # limits
    max_connections: int = 10_000
    """Limit on connections. One more is closed at once."""
    max_connections_per_host: int = 1_000
    """Limit on connections from one host. Loopback addresses are exempt."""
    unfinished: UnfinishedLimits = UnfinishedLimits()
    backlog: int = 1024
    """Connections that the system queues before the broker accepts them."""
    idle_s: int = 120
    """A connection that is silent for this long is closed, in seconds."""

    # shutdown
    drain_s: float = 0.5
    """How long a shutdown waits for running requests, in seconds."""
    linger_s: float = 0.3
    """How long a closing connection may take to send its data, in seconds."""

    def __post_init__(self) -> None:
        require_positive("broker", self, may_be_zero=("port", "broker_id", "permission"))
        parse_topic(self.cluster)  # both are names of topics too
        parse_broker(self.broker_name)
        if self.permission & ~Perm.READ_WRITE:
            raise InvalidSetting(
                f"permission {self.permission} is invalid; 2 is write, 4 is read, 6 is both, 0 is neither"
            )
        if not 10_000 <= self.register_interval_ms <= 60_000:
            raise InvalidSetting(
                "register_interval_ms must be from 10000 to 60000; name servers remove a broker "
                "after 120000 ms without a registration"
            )
        check_listen_addresses(self, danger="may read, send and administrate")
        check_role(self)
        check_who_may_replicate(self)

    @property
    def waits_for_slaves(self) -> bool:
        return self.role is Role.SYNC_MASTER

    @property
    def is_slave(self) -> bool:
        return self.role is Role.SLAVE

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)


SettingsInUse = InUse[BrokerSettings]

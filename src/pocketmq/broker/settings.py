"""Every limit, interval and switch of a broker, with RocketMQ's defaults where it has them."""

from pathlib import Path

import msgspec

from pocketmq.access.refusals import AuthenticationSettings
from pocketmq.access.settings import check_door
from pocketmq.clock import STEP_CONFIRM_MS
from pocketmq.errors import InvalidSetting
from pocketmq.metrics.settings import MetricsSettings
from pocketmq.model.flags import Perm
from pocketmq.model.names import parse_broker, parse_topic
from pocketmq.net.address import Address
from pocketmq.net.tls import ClientTlsFiles, ServerTlsFiles
from pocketmq.net.unfinished import UnfinishedLimits
from pocketmq.protocol.signing import Credentials
from pocketmq.store.settings import MIB, StoreSettings

DEFAULT_PORT = 10911
DEFAULT_FOLDER = Path("pocketmq-data")
COARSEST_MS = 60_000
"""By how much a timed message may be late: each waits until a whole number of these is over."""
LONGEST_DELAY_S = 100 * 365 * 24 * 3600
"""For timed messages: what is due later than any date would be taken, and could never be delivered."""


def _require_positive(kind: str, settings: msgspec.Struct, may_be_zero: tuple[str, ...] = ()) -> None:
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if value < 0 or (value == 0 and name not in may_be_zero):
            raise InvalidSetting(f"{kind} setting {name} = {value} must be above 0")


class FlowSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How long requests may wait for the broker, and how many may; see `flow`."""

    turn_budget_ms: int = 20
    """A turn that takes longer leaves the rest of its requests for later, so that other connections are served."""
    sweep_interval_ms: int = 10
    """How often waiting requests are looked at."""
    send_wait_ms: int = 200
    pull_wait_ms: int = 5_000
    heartbeat_wait_ms: int = 31_000
    transaction_wait_ms: int = 3_000
    """A request that waited longer is refused as SYSTEM_BUSY."""
    max_waiting_sends: int = 10_000
    max_waiting_pulls: int = 100_000
    max_waiting_heartbeats: int = 50_000
    max_waiting_transactions: int = 100_000
    max_waiting_bytes: int = 64 * MIB
    """Of all waiting requests together."""
    page_cache_busy_ms: int = 1_000
    """The log has been unable to take a write for so long: sends are refused at once, without waiting."""
    max_held_pulls: int = 100_000
    """Pulls that wait for a message; one more is answered at once."""

    def __post_init__(self) -> None:
        _require_positive("flow", self)


class TransactionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When undecided transactions are asked about; see `transactions`."""

    check_interval_ms: int = 30_000
    timeout_ms: int = 6_000
    """A half message is first asked about when it is so old, unless it names another time."""
    max_checks: int = 15
    op_batch_bytes: int = 4_096
    op_batch_ms: int = 3_000
    """Decided half messages are noted in the log together: so many bytes of offsets, or so much later."""
    max_run_ms: int = 50
    """How long one step of checking may keep the broker from other work."""

    def __post_init__(self) -> None:
        _require_positive("transaction", self)


class TimerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that are due at a time of their own; see `timers`."""

    enabled: bool = True
    precision_ms: int = 1_000
    max_delay_s: int = 3 * 24 * 3600
    recall_enabled: bool = True

    def __post_init__(self) -> None:
        _require_positive("timer", self)
        if self.precision_ms > COARSEST_MS:
            raise InvalidSetting(f"timer setting precision_ms = {self.precision_ms} must be at most {COARSEST_MS}")
        if self.max_delay_s > LONGEST_DELAY_S:
            raise InvalidSetting(f"timer setting max_delay_s = {self.max_delay_s} must be at most {LONGEST_DELAY_S}")


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a broker runs. `setting_keys` has RocketMQ's names for these, and says which may change while it runs."""

    # who it is
    cluster: str = "DefaultCluster"
    broker_name: str = "broker-a"
    broker_id: int = 0
    region: str = "DefaultRegion"

    # where it listens, whom it tells, and what it keeps
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    """0 means any free one."""
    advertised_host: str | None = None
    """Where clients find it. None: the address by which it reaches its first name server."""
    advertised_port: int | None = None
    """None: the one that it listens on."""
    vip_channel: bool = True
    """Listen two ports below as well, where older clients send."""
    name_servers: tuple[Address, ...] = ()
    open_to_the_network_without_authentication: bool = False
    """Needed to listen where other machines reach it without `accounts`: whoever does may read, send and administrate."""
    store: StoreSettings = StoreSettings(folder=DEFAULT_FOLDER)

    # who may talk to it, and as whom it talks to name servers
    accounts: Path | None = None
    """The file of accounts, read at the start and when it changes: every request must be signed by one of them. None: nobody is asked."""
    authentication: AuthenticationSettings = AuthenticationSettings()
    credentials: Credentials | None = None
    """Requests to name servers are signed with them."""
    tls: ServerTlsFiles = ServerTlsFiles()
    name_server_tls: ClientTlsFiles = ClientTlsFiles()

    # what it allows
    permission: int = Perm.READ_WRITE
    auto_create_topic: bool = True
    auto_create_group: bool = True
    default_queues: int = 8
    max_topics: int = 100_000
    """Topics made by sending to them; those of groups are counted by the next."""
    max_retry_topics: int = 50_000
    """Topics for retries and dead letters. Heartbeats make them until half are in use, then the first message sent back does."""
    max_groups: int = 100_000
    property_filter: bool = True
    """Answer SQL92 subscriptions."""
    lite_pull: bool = True
    transactions_rejected: bool = False
    trace_topic: bool = False
    """Have RMQ_SYS_TRACE_TOPIC, where clients keep their traces."""
    trace_on: bool = True
    """Tell clients that they may trace."""

    # pulling
    long_polling: bool = True
    short_polling_ms: int = 1_000
    """How long a pull is held when long polling is off."""
    hold_check_ms: int = 5_000
    """A held pull whose queue grew by messages that it does not want is answered after so long, to move it on."""
    slave_read: bool = False
    """Suggest another broker of the same name to readers that are far behind."""

    # clients
    client_expiry_ms: int = 120_000
    lock_lease_ms: int = 60_000
    expiry_scan_ms: int = 10_000
    notify_changes: bool = True
    """Tell the members of a group at once when it changes."""
    client_call_ms: int = 10_000
    """How long a client has to answer what an administrator asks of it through the broker."""
    store_reply_messages: bool = True
    server_side_reset: bool = True
    """Offsets are reset here; else the members of the group are told to do it."""

    # saving and telling
    save_interval_ms: int = 5_000
    progress_save_interval_ms: int = 1_000
    """How often the progress of delayed and timed messages is saved: what was delivered since comes again after a crash."""
    register_interval_ms: int = 30_000
    register_timeout_ms: int = 6_000
    route_wait_ms: int = 1_000
    """The first send to a new topic, and its creation, are answered when the name servers know it, or after so long."""

    clock_step_confirm_ms: int = STEP_CONFIRM_MS
    """A step of the wall clock ahead is followed when it has lasted for so long; see `clock.SteadyClock`."""
    delay_poll_ms: int = 100
    tick_ms: int = 10
    """How often the store gets its turn for what is due."""

    metrics: MetricsSettings = MetricsSettings()
    flow: FlowSettings = FlowSettings()
    transaction: TransactionSettings = TransactionSettings()
    timer: TimerSettings = TimerSettings()

    # bounds
    max_connections: int = 10_000
    max_connections_per_host: int = 1_000
    """Loopback addresses are exempt."""
    unfinished: UnfinishedLimits = UnfinishedLimits()
    backlog: int = 1024
    idle_s: int = 120
    """A connection is closed when neither side said anything for so long."""

    # the end
    drain_s: float = 0.5
    """How long stopping waits for requests that are being served."""
    linger_s: float = 0.3
    """How long a closing connection may take to send what was written."""

    def __post_init__(self) -> None:
        _require_positive("broker", self, may_be_zero=("port", "broker_id", "permission"))
        parse_topic(self.cluster)  # both are names of topics too
        parse_broker(self.broker_name)
        if self.permission & ~Perm.READ_WRITE:
            raise InvalidSetting(
                f"permission {self.permission} is none; 2 is write, 4 is read, 6 is both, 0 is neither"
            )
        if not 10_000 <= self.register_interval_ms <= 60_000:
            raise InvalidSetting("register_interval_ms must be from 10000 to 60000; name servers forget after 120000")
        check_door(
            self.address,
            has_accounts=bool(self.accounts),
            is_open=self.open_to_the_network_without_authentication,
            danger="broker may read, send and administrate",
        )
        if self.metrics.enabled:
            check_door(
                self.metrics.address,
                has_accounts=bool(self.accounts),
                is_open=self.open_to_the_network_without_authentication or self.metrics.without_authentication,
                danger="broker's metrics may read the names of all topics and groups",
            )

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)


class SettingsInUse:
    """The settings as they are now. `now` is replaced as a whole when one of them changes."""

    __slots__ = ("now",)

    def __init__(self, settings: BrokerSettings) -> None:
        self.now = settings

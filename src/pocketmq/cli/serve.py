"""`pocketmq serve`: a name server and a broker, or several, with one command."""

from pathlib import Path
from typing import Any, NamedTuple

import click

from pocketmq.access.door import OPEN_FLAG
from pocketmq.broker.setting_keys import read_keys
from pocketmq.broker.settings import DEFAULT_FOLDER, BrokerSettings
from pocketmq.broker.settings import DEFAULT_PORT as BROKER_PORT
from pocketmq.cli.access_options import accounts_option, tls_options, with_tls
from pocketmq.cli.broker import FLUSH_CHOICE, advertise_option, set_option, settings_given
from pocketmq.cli.broker_processes import MOST_BROKERS, BrokerPlan, BrokerProcesses, broker_name
from pocketmq.cli.console import WithConsole, console_options, console_wishes
from pocketmq.cli.log_lines import log_format_option
from pocketmq.cli.metrics_options import MetricsWishes, metrics_options
from pocketmq.cli.ready import access_facts, access_words, flush_words, metrics_facts, show_banner, show_json
from pocketmq.cli.running import log_to_stderr, run_until_stopped
from pocketmq.embedded.server import (
    KV_CONFIG_PATH,
    LOG_SIZE_KEY,
    Server,
    check_keys,
    limits_for,
    name_server_tls,
    registrar,
)
from pocketmq.errors import InvalidSetting
from pocketmq.files import DiskFiles
from pocketmq.metrics.settings import MetricsSettings
from pocketmq.nameserver.settings import DEFAULT_PORT as NAME_SERVER_PORT
from pocketmq.nameserver.settings import NameServerSettings
from pocketmq.net.address import LARGEST_PORT, Address
from pocketmq.net.tls import ServerTlsFiles
from pocketmq.store.layout import find_log_file_bytes
from pocketmq.store.settings import EMBEDDED_LOG_FILE_BYTES, FlushMode

PORT_STEP = 10
"""Between the ports of one broker and the next, as RocketMQ's examples have it."""
PORT = click.IntRange(0, LARGEST_PORT)


class Wishes(NamedTuple):
    """What the command line asked for."""

    host: str
    name_server_port: int
    broker_port: int
    folder: Path
    flush: str
    settings: dict[str, str]
    accounts: Path | None
    tls: ServerTlsFiles
    metrics: MetricsWishes
    is_open: bool
    log_format: str


@click.command()
@click.option("--host", default="127.0.0.1", metavar="HOST", show_default=True, help="Where to listen.")
@click.option(
    "--namesrv-port",
    type=PORT,
    default=NAME_SERVER_PORT,
    metavar="PORT",
    show_default=True,
    help="Where the name server listens; 0 is any free port.",
)
@click.option(
    "--broker-port",
    type=PORT,
    default=BROKER_PORT,
    metavar="PORT",
    show_default=True,
    help=f"Where the broker listens; 0 is any free port. Further brokers: {PORT_STEP} more each.",
)
@advertise_option
@click.option(
    "--data",
    "folder",
    type=click.Path(path_type=Path),
    default=DEFAULT_FOLDER,
    metavar="DIR",
    show_default=True,
    help="Where everything is kept, each broker in a folder of its own.",
)
@click.option(
    "--flush",
    type=FLUSH_CHOICE,
    default=FlushMode.ASYNC.value,
    show_default=True,
    help="async answers a send when it is written, sync when it is safe on the disk.",
)
@click.option(
    "--brokers",
    "count",
    type=click.IntRange(1, MOST_BROKERS),
    default=1,
    metavar="N",
    show_default=True,
    help="How many brokers. From 2 on, each is a process of its own.",
)
@set_option
@accounts_option
@tls_options
@metrics_options
@console_options
@click.option(OPEN_FLAG, "is_open", is_flag=True, help="Needed to listen, without accounts, where others reach it.")
@log_format_option
@click.option("--json", "as_json", is_flag=True, help="When ready, one line of JSON instead of a banner.")
def serve(
    host: str,
    namesrv_port: int,
    broker_port: int,
    advertise: str | None,
    folder: Path,
    flush: str,
    count: int,
    given: tuple[str, ...],
    accounts: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    tls_mode: str | None,
    metrics_port: int | None,
    metrics_host: str | None,
    metrics_is_open: bool,
    with_console: bool,
    console_host: str,
    console_port: int,
    console_users: Path | None,
    is_open: bool,
    log_format: str,
    as_json: bool,
) -> None:
    """Run a name server and a broker until ctrl-C or SIGTERM.

    Everything that RocketMQ's clients need, for a laptop, a test or a small installation. Give clients the address of the
    name server. Topics are created by sending to them.
    """
    settings = settings_given(given) | ({"brokerIP1": advertise} if advertise else {})
    tls = with_tls(ServerTlsFiles(), tls_cert, tls_key, tls_client_ca, tls_mode)
    metrics = MetricsWishes(metrics_port, metrics_host, metrics_is_open)
    metrics.over(MetricsSettings())
    wishes = Wishes(
        host, namesrv_port, broker_port, folder, flush, settings, accounts, tls, metrics, is_open, log_format
    )
    show = _show_json if as_json else _show_banner
    beside = (
        console_wishes(console_host, console_port, console_users, accounts, tls, log_format) if with_console else None
    )
    log_to_stderr(log_format)
    if count == 1:
        run_until_stopped(
            WithConsole(_in_one_process(wishes), beside),
            lambda both: show(wishes, both.running.name_server, _brokers_of(both.running), both.url),
        )
    else:
        run_until_stopped(
            WithConsole(_in_processes(wishes, count), beside),
            lambda both: show(
                wishes, both.running.name_server, [broker.ready for broker in both.running.brokers], both.url
            ),
            lambda both: both.running.until_one_ends(),
        )


def _in_one_process(wishes: Wishes) -> Server:
    return Server(
        wishes.folder,
        host=wishes.host,
        name_server_port=wishes.name_server_port,
        broker_port=wishes.broker_port,
        flush=wishes.flush,
        settings=wishes.metrics.keys() | wishes.settings,
        accounts=wishes.accounts,
        tls=wishes.tls,
        open_to_the_network_without_authentication=wishes.is_open,
    )


def _in_processes(wishes: Wishes, count: int) -> BrokerProcesses:
    check_keys(wishes.settings)
    broker, _ = read_keys(wishes.settings)  # each broker logs its warnings
    if "brokerName" in wishes.settings:
        raise InvalidSetting("several brokers cannot have one brokerName: they are called broker-a, broker-b …")
    name_server = NameServerSettings(
        host=wishes.host,
        port=wishes.name_server_port,
        kv_config_path=wishes.folder / KV_CONFIG_PATH,
        accounts=wishes.accounts,
        tls=wishes.tls,
        metrics=wishes.metrics.over(MetricsSettings()),
        limits=limits_for(broker, count),
        open_to_the_network_without_authentication=wishes.is_open,
    )
    return BrokerProcesses(name_server, [_plan(wishes, number) for number in range(count)])


def _plan(wishes: Wishes, number: int) -> BrokerPlan:
    name = broker_name(number)
    folder = wishes.folder / name
    port = wishes.broker_port and wishes.broker_port + number * PORT_STEP
    settings = {"autoCreateTopicEnable": "true"} | wishes.settings
    if find_log_file_bytes(DiskFiles(), folder) is None:
        settings.setdefault(LOG_SIZE_KEY, str(EMBEDDED_LOG_FILE_BYTES))
    options = ["--host", wishes.host, "--port", str(port), "--flush", wishes.flush, "--log-format", wishes.log_format]
    if (first := wishes.metrics.port) is not None:  # the name server's; each broker has the next one
        options += wishes.metrics.options(first and first + 1 + number)
    options += [OPEN_FLAG] if wishes.is_open else []
    options += _access_options(wishes)
    for key, text in settings.items():
        options += ["--set", f"{key}={text}"]
    return BrokerPlan(name, folder, options)


def _access_options(wishes: Wishes) -> list[str]:
    """A broker has the accounts and the certificate of the name server, and knows it by them."""
    options = []
    if wishes.accounts is not None:
        cluster = wishes.settings.get("brokerClusterName", BrokerSettings().cluster)
        options += ["--accounts", str(wishes.accounts)]
        options += ["--register-as", registrar(wishes.accounts, cluster).access_key]
    tls, towards = wishes.tls, name_server_tls(wishes.tls)
    if towards.enabled:
        options += ["--tls-mode", tls.in_use.value, "--set", "useTLS=true"]
    files = {"tls-cert": tls.cert, "tls-key": tls.key, "tls-client-ca": tls.client_ca}
    for option, file in files.items():
        options += [] if file is None else [f"--{option}", str(file)]
    keys = {"pinnedCertPath": towards.pinned, "certPath": towards.cert, "keyPath": towards.key}
    for key, file in keys.items():
        options += [] if file is None else ["--set", f"tls.client.{key}={file}"]
    return options


def _brokers_of(server: Server) -> list[dict[str, Any]]:
    settings = server.broker_settings
    return [
        {
            "name": settings.broker_name,
            "address": server.broker_address,
            "data": str(settings.store.folder),
            **metrics_facts(server.metrics_address, settings.metrics, settings.tls),
        }
    ]


def _show_banner(wishes: Wishes, name_server: str, brokers: list[dict[str, Any]], console: str | None) -> None:
    show_banner(
        "PocketMQ",
        {
            "name server": name_server,
            **{broker["name"]: broker["address"] for broker in brokers},
            "data": str(wishes.folder),
            "flush": flush_words(FlushMode(wishes.flush)),
            **_metrics_rows(brokers),
            **({"console": console} if console else {}),
            **access_words(Address(wishes.host, 0), wishes.accounts, wishes.tls),
        },
    )


def _metrics_rows(brokers: list[dict[str, Any]]) -> dict[str, str]:
    told = [broker["metrics"] for broker in brokers if broker["metrics"]]
    return {"metrics": ", ".join(told)} if told else {}


def _show_json(wishes: Wishes, name_server: str, brokers: list[dict[str, Any]], console: str | None) -> None:
    show_json(
        "serve",
        {
            "name_server": name_server,
            "brokers": [{fact: broker[fact] for fact in ("name", "address", "data", "metrics")} for broker in brokers],
            "data": str(wishes.folder),
            "flush": wishes.flush,
            "console": console,
            **access_facts(Address(wishes.host, 0), wishes.accounts, wishes.tls),
        },
    )

"""`pocketmq nameserver`: a name server until it is told to stop."""

from pathlib import Path
from typing import Any

import click
import msgspec

from pocketmq.access.door import OPEN_FLAG
from pocketmq.cli.access_options import accounts_option, tls_options, with_tls
from pocketmq.cli.log_lines import log_format_option
from pocketmq.cli.metrics_options import MetricsWishes, metrics_options
from pocketmq.cli.ready import access_facts, access_words, metrics_facts, metrics_words, show_banner, show_json
from pocketmq.cli.running import log_to_stderr, run_until_stopped
from pocketmq.errors import BodyError, InvalidSetting
from pocketmq.files import DiskFiles
from pocketmq.nameserver.server import NameServer
from pocketmq.nameserver.setting_keys import read_keys
from pocketmq.nameserver.settings import DEFAULT_PORT, NameServerSettings
from pocketmq.net.address import LARGEST_PORT
from pocketmq.protocol.bodies.properties_text import read_properties

DEFAULT_FOLDER = Path("pocketmq-data", "nameserver")
KV_CONFIG_FILE = "kvConfig.json"


@click.command()
@click.option("--host", metavar="HOST", help="Where to listen.  [default: 127.0.0.1]")
@click.option(
    "--port",
    type=click.IntRange(0, LARGEST_PORT),
    metavar="PORT",
    help=f"Where to listen; 0 is any free port.  [default: {DEFAULT_PORT}]",
)
@click.option(
    "--data",
    "folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help=f"Where the KV config is kept; made when something is put into it.  [default: {DEFAULT_FOLDER}]",
)
@click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="RocketMQ's namesrv.conf. Options given here count more than what it says.",
)
@accounts_option
@tls_options
@metrics_options
@click.option(OPEN_FLAG, "is_open", is_flag=True, help="Needed to listen, without accounts, where others reach it.")
@log_format_option
@click.option("--json", "as_json", is_flag=True, help="When ready, one line of JSON instead of a banner.")
def nameserver(
    host: str | None,
    port: int | None,
    folder: Path | None,
    config: Path | None,
    accounts: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    tls_mode: str | None,
    metrics_port: int | None,
    metrics_host: str | None,
    metrics_is_open: bool,
    is_open: bool,
    log_format: str,
    as_json: bool,
) -> None:
    """Run a name server until ctrl-C or SIGTERM.

    Brokers register with it, and clients ask it where topics are. It forgets brokers when they go; what it is told to
    remember (the KV config) is kept in DIR/kvConfig.json, the file of RocketMQ.
    """
    settings = _settings(config, host=host, port=port, folder=folder, accounts=accounts, is_open=is_open)
    tls = with_tls(settings.tls, tls_cert, tls_key, tls_client_ca, tls_mode)
    settings = msgspec.structs.replace(settings, tls=tls)
    metrics = MetricsWishes(metrics_port, metrics_host, metrics_is_open).over(settings.metrics)
    settings = msgspec.structs.replace(settings, metrics=metrics)
    log_to_stderr(log_format)
    show = _show_json if as_json else _show_banner
    run_until_stopped(NameServer(settings), lambda server: show(server, settings))


def _settings(
    config: Path | None,
    *,
    host: str | None,
    port: int | None,
    folder: Path | None,
    accounts: Path | None,
    is_open: bool,
) -> NameServerSettings:
    """Options first, then the file, then defaults."""
    options: dict[str, Any] = {"host": host, "port": port, "kv_config_path": folder and folder / KV_CONFIG_FILE}
    options["accounts"] = accounts
    given = {name: value for name, value in options.items() if value is not None}
    # While the file is read it may listen anywhere: an option may still say that it shall not.
    base = NameServerSettings(
        kv_config_path=DEFAULT_FOLDER / KV_CONFIG_FILE,
        accounts=accounts,
        open_to_the_network_without_authentication=True,
    )
    settings = base if config is None else _from_file(config, base)
    return msgspec.structs.replace(settings, open_to_the_network_without_authentication=is_open, **given)


def _from_file(path: Path, base: NameServerSettings) -> NameServerSettings:
    try:
        settings, warnings = read_keys(read_properties(DiskFiles().read(path)), base)
    except (BodyError, InvalidSetting) as error:
        raise InvalidSetting(f"{path}: {error}") from None
    for warning in warnings:
        click.echo(f"{path}: {warning}", err=True)
    return settings


def _show_banner(server: NameServer, settings: NameServerSettings) -> None:
    show_banner(
        "PocketMQ name server",
        {
            "address": str(server.address),
            "KV config": str(settings.kv_config_path),
            **metrics_words(server.metrics_address, settings.metrics, settings.tls),
            **access_words(server.address, settings.accounts, settings.tls),
        },
    )


def _show_json(server: NameServer, settings: NameServerSettings) -> None:
    path = settings.kv_config_path
    show_json(
        "nameserver",
        {
            "address": str(server.address),
            "host": server.address.host,
            "port": server.address.port,
            "data": path and str(path.parent),
            **metrics_facts(server.metrics_address, settings.metrics, settings.tls),
            **access_facts(server.address, settings.accounts, settings.tls),
        },
    )

"""`pocketmq nameserver`: run a name server."""

from pathlib import Path
from typing import Any

import click
import msgspec

from pocketmq.cli.commands import path_option, port_option, text_option
from pocketmq.cli.programs import log_to_stderr, run_until_stopped
from pocketmq.cli.server_options import (
    DATA_VARIABLE,
    HOST_VARIABLE,
    ServerOptions,
    server_facts,
    server_options,
    server_rows,
    show_banner,
    show_json,
)
from pocketmq.errors import BodyError, InvalidSetting
from pocketmq.files import DiskFiles
from pocketmq.nameserver.server import NameServer
from pocketmq.nameserver.settings import DEFAULT_PORT, NameServerSettings, read_keys
from pocketmq.protocol.bodies.properties_text import read_properties

DEFAULT_FOLDER = Path("pocketmq-data", "nameserver")
KV_CONFIG_FILE = "kvConfig.json"


@click.command()
@text_option("--host", "The address to listen on.  [default: 127.0.0.1]", metavar="HOST", **HOST_VARIABLE)
@port_option("--port", f"The port to listen on; 0 is any free port.  [default: {DEFAULT_PORT}]")
@path_option(
    "--data",
    "folder",
    f"The folder of the KV config, created when it is first used.  [default: {DEFAULT_FOLDER}]",
    metavar="DIR",
    **DATA_VARIABLE,
)
@path_option("-c", "--config", "A RocketMQ namesrv.conf. Options override its settings.")
@server_options
def nameserver(
    options: ServerOptions, host: str | None, port: int | None, folder: Path | None, config: Path | None
) -> None:
    """Run a name server until ctrl-C or SIGTERM.

    Brokers register with it, and clients get the routes of topics from it. It removes brokers that disconnect. The KV config
    is stored in DIR/kvConfig.json, as in RocketMQ.
    """
    settings = _settings(options, config, host, port, folder)
    log_to_stderr(options.log_format)
    show = _show_json if options.as_json else _show_banner
    run_until_stopped(NameServer(settings), lambda server: show(server, settings))


def _settings(
    options: ServerOptions, config: Path | None, host: str | None, port: int | None, folder: Path | None
) -> NameServerSettings:
    """Options first, then the file, then defaults."""
    overrides: dict[str, Any] = {"host": host, "port": port, "kv_config_path": folder and folder / KV_CONFIG_FILE}
    overrides["accounts"] = options.accounts
    # The address of the file is checked at the end, since an option may override it.
    base = NameServerSettings(
        kv_config_path=DEFAULT_FOLDER / KV_CONFIG_FILE,
        accounts=options.accounts,
        open_to_the_network_without_authentication=True,
    )
    settings = base if config is None else _from_file(config, base)
    return msgspec.structs.replace(
        settings,
        tls=options.tls(settings.tls),
        metrics=options.metrics(settings.metrics),
        open_to_the_network_without_authentication=options.is_open,
        **{name: value for name, value in overrides.items() if value is not None},
    )


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
            **server_rows(server, settings),
        },
    )


def _show_json(server: NameServer, settings: NameServerSettings) -> None:
    path = settings.kv_config_path
    show_json(
        "nameserver",
        {
            "data": path and str(path.parent),
            **server_facts(server, settings),
        },
    )

"""`pocketmq broker`: run a broker."""

import os
from collections.abc import Mapping
from pathlib import Path

import click
from msgspec.structs import replace

from pocketmq.access.accounts_file import read_accounts
from pocketmq.broker.broker import Broker
from pocketmq.broker.setting_keys import read_keys, read_name_servers
from pocketmq.broker.settings import DEFAULT_FOLDER, DEFAULT_PORT, BrokerSettings
from pocketmq.cli.commands import flag, path_option, port_option, text_option, variable
from pocketmq.cli.programs import log_to_stderr, run_until_stopped
from pocketmq.cli.server_options import (
    DATA_VARIABLE,
    HOST_VARIABLE,
    ServerOptions,
    flush_text,
    server_facts,
    server_options,
    server_rows,
    show_banner,
    show_json,
)
from pocketmq.errors import BodyError, InvalidSetting, UsageError
from pocketmq.files import DiskFiles
from pocketmq.net import end_of_input
from pocketmq.protocol.bodies.properties_text import read_properties
from pocketmq.store.layout import find_log_file_bytes
from pocketmq.store.settings import FlushMode, StoreSettings

NAME_SERVERS_VARIABLE = "NAMESRV_ADDR"
"""RocketMQ's variable with the default name servers."""

FLUSH_CHOICE = click.Choice([mode.value for mode in FlushMode])


def parse_settings(set_keys: tuple[str, ...], option: str = "--set") -> dict[str, str]:
    """`--set key=value` as properties."""
    properties = {}
    for each in set_keys:
        name, equals, text = each.partition("=")
        if not equals or not name.strip():
            raise InvalidSetting(f"{option} {each}: expected KEY=VALUE")
        properties[name.strip()] = text
    return properties


set_option = text_option(
    "--set", "set_keys", "A setting of broker.conf; may be repeated.", multiple=True, metavar="KEY=VALUE"
)
flush_option = click.option(
    "--flush",
    type=FLUSH_CHOICE,
    help="Acknowledge a send when it is written (async) or synced to disk (sync).  [default: async]",
)
advertise_option = text_option(
    "--advertise",
    "The address that clients connect to, if it is not the listening address (brokerIP1).",
    metavar="HOST",
    **variable("POCKETMQ_ADVERTISE"),
)


@click.command()
@text_option("--host", "The address to listen on.  [default: 127.0.0.1]", metavar="HOST", **HOST_VARIABLE)
@port_option("--port", f"The port to listen on; 0 is any free port.  [default: {DEFAULT_PORT}]")
@advertise_option
@text_option(
    "-n",
    "--namesrv",
    "name_servers",
    f"The name servers to register with.  [default: ${NAME_SERVERS_VARIABLE}]",
    metavar="HOST:PORT;…",
)
@text_option("--name", "The name of the broker.  [default: broker-a]", metavar="NAME")
@text_option("--cluster", "The cluster of the broker.  [default: DefaultCluster]", metavar="NAME")
@text_option(
    "--data",
    "folder",
    f"The folder of the store (storePathRootDir).  [default: {DEFAULT_FOLDER}/NAME]",
    metavar="DIR",
    **DATA_VARIABLE,
)
@flush_option
@set_option
@path_option("-c", "--config", "A RocketMQ broker.conf. Options override its settings.")
@text_option("--register-as", "The account for registering with name servers.", metavar="KEY")
@flag("--namesrv-tls", "Use TLS to name servers, and verify them with the certificates of this system.")
@path_option("--namesrv-ca", "Use TLS to name servers, and verify them with this certificate authority.")
@flag("--until-end-of-input", "Also stop when stdin ends, as it does when the parent process ends.")
@server_options
def broker(
    options: ServerOptions,
    host: str | None,
    port: int | None,
    advertise: str | None,
    name_servers: str | None,
    name: str | None,
    cluster: str | None,
    folder: str | None,
    flush: str | None,
    set_keys: tuple[str, ...],
    config: Path | None,
    register_as: str | None,
    namesrv_tls: bool,
    namesrv_ca: Path | None,
    until_end_of_input: bool,
) -> None:
    """Run a broker until ctrl-C or SIGTERM.

    It stores messages in RocketMQ's file format and registers with name servers. Producers can send only to existing topics,
    unless autoCreateTopicEnable=true.
    """
    keys = {
        "bindAddress": host,
        "listenPort": None if port is None else str(port),
        "brokerIP1": advertise,
        "namesrvAddr": name_servers,
        "brokerName": name,
        "brokerClusterName": cluster,
        "storePathRootDir": folder,
        "flushDiskType": flush and f"{flush.upper()}_FLUSH",
        "useTLS": "true" if namesrv_tls or namesrv_ca else None,
        "tls.client.trustCertPath": None if namesrv_ca is None else str(namesrv_ca),
        **options.keys(),
    }
    overrides = parse_settings(set_keys) | {key: text for key, text in keys.items() if text is not None}
    settings = _registering_as(register_as, _settings(config, overrides, is_open=options.is_open))
    options.metrics(settings.metrics)  # rejects a host without a port
    log_to_stderr(options.log_format, settings.broker_name)
    run_until_stopped(
        Broker(settings),
        _show_json if options.as_json else _show_banner,
        (lambda _: end_of_input()) if until_end_of_input else None,
    )


def _settings(config: Path | None, overrides: Mapping[str, str], *, is_open: bool) -> BrokerSettings:
    """Options first, then the file, then defaults."""
    # The address of the file is checked at the end, since an option may override it.
    base = BrokerSettings(
        name_servers=read_name_servers(os.environ.get(NAME_SERVERS_VARIABLE, "")),
        auto_create_topic=False,
        accounts=Path(overrides["accountsFile"]) if "accountsFile" in overrides else None,
        open_to_the_network_without_authentication=True,
    )
    in_file = {} if config is None else _properties(config)
    settings = _read(f"{config}", in_file, base)
    settings = _read("--set", overrides, settings)
    store = _store_settings(settings, in_file.keys() | overrides.keys())
    return replace(settings, store=store, open_to_the_network_without_authentication=is_open)


def _registering_as(access_key: str | None, settings: BrokerSettings) -> BrokerSettings:
    if access_key is None:
        return settings
    if settings.accounts is None:
        raise InvalidSetting("--register-as needs the file of the account: --accounts FILE")
    account = read_accounts(DiskFiles(), settings.accounts, os.environ).get(access_key)
    if account is None:
        raise InvalidSetting(f"--register-as {access_key}: no such account in {settings.accounts}")
    return replace(settings, credentials=account.credentials)


def _properties(path: Path) -> dict[str, str]:
    try:
        return read_properties(DiskFiles().read(path))
    except BodyError as error:
        raise InvalidSetting(f"{path}: {error}") from None


def _read(source: str, properties: Mapping[str, str], base: BrokerSettings) -> BrokerSettings:
    try:
        settings, warnings = read_keys(properties, base)
    except UsageError as error:
        raise InvalidSetting(f"{source}: {error}") from None
    for warning in warnings:
        click.echo(f"warning: {source}: {warning}", err=True)
    return settings


def _store_settings(settings: BrokerSettings, named: set[str]) -> StoreSettings:
    """The default folder of this broker, and the size of its existing log files, unless they are set."""
    store = settings.store
    if "storePathRootDir" not in named:
        store = replace(store, folder=DEFAULT_FOLDER / settings.broker_name)
    if "mappedFileSizeCommitLog" not in named:
        store = replace(store, log_file_bytes=find_log_file_bytes(DiskFiles(), store.folder) or store.log_file_bytes)
    return store


def _show_banner(broker: Broker) -> None:
    settings = broker.settings
    show_banner(
        "PocketMQ broker",
        {
            "broker": f"{settings.broker_name} of {settings.cluster}",
            "address": _address_text(broker),
            "name servers": ", ".join(map(str, settings.name_servers))
            or "none: clients need the address of the broker",
            "data": str(settings.store.folder),
            "flush": flush_text(settings.store.flush),
            "topics": "created automatically" if settings.auto_create_topic else "not created automatically",
            **server_rows(broker, settings),
        },
    )


def _address_text(broker: Broker) -> str:
    listening, advertised = str(broker.address), str(broker.advertised_address)
    return listening if listening == advertised else f"{listening}, advertised as {advertised}"


def _show_json(broker: Broker) -> None:
    settings = broker.settings
    show_json(
        "broker",
        {
            "name": settings.broker_name,
            "cluster": settings.cluster,
            "advertised": str(broker.advertised_address),
            "name_servers": [str(address) for address in settings.name_servers],
            "data": str(settings.store.folder),
            "flush": settings.store.flush,
            **server_facts(broker, settings),
        },
    )

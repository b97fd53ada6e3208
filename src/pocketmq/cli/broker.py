"""`pocketmq broker`: a broker until it is told to stop."""

import os
from collections.abc import Mapping
from pathlib import Path

import click
from msgspec.structs import replace

from pocketmq.access.accounts_file import read_accounts
from pocketmq.broker.broker import Broker
from pocketmq.broker.setting_keys import read_keys, read_name_servers
from pocketmq.broker.settings import DEFAULT_FOLDER, DEFAULT_PORT, BrokerSettings
from pocketmq.cli.programs import (
    ServerOptions,
    flush_words,
    log_to_stderr,
    run_until_stopped,
    server_facts,
    server_options,
    server_words,
    show_banner,
    show_json,
)
from pocketmq.errors import BodyError, InvalidSetting, UsageError
from pocketmq.files import DiskFiles
from pocketmq.net.address import LARGEST_PORT
from pocketmq.net.loops import end_of_input
from pocketmq.protocol.bodies.properties_text import read_properties
from pocketmq.store.layout import find_log_file_bytes
from pocketmq.store.settings import FlushMode, StoreSettings

NAME_SERVERS_VARIABLE = "NAMESRV_ADDR"
"""Where RocketMQ's programs look for name servers when nothing else names them."""

FLUSH_CHOICE = click.Choice([mode.value for mode in FlushMode])


def settings_given(words: tuple[str, ...]) -> dict[str, str]:
    """`--set key=value` as properties."""
    properties = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise InvalidSetting(f"--set {word}: write it as --set KEY=VALUE")
        properties[name.strip()] = text
    return properties


set_option = click.option(
    "--set",
    "given",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting by RocketMQ's name, as in broker.conf. May be given several times.",
)
flush_option = click.option(
    "--flush",
    type=FLUSH_CHOICE,
    help="async answers a send when it is written, sync when it is safe on the disk.  [default: async]",
)
advertise_option = click.option(
    "--advertise",
    metavar="HOST",
    help="Where clients find it, if that is not where it listens (brokerIP1).",
)


@click.command()
@click.option("--host", metavar="HOST", help="Where to listen.  [default: 127.0.0.1]")
@click.option(
    "--port",
    type=click.IntRange(0, LARGEST_PORT),
    metavar="PORT",
    help=f"Where to listen; 0 is any free port.  [default: {DEFAULT_PORT}]",
)
@advertise_option
@click.option(
    "-n",
    "--namesrv",
    "name_servers",
    metavar="HOST:PORT;…",
    help=f"The name servers that it registers with.  [default: what ${NAME_SERVERS_VARIABLE} says]",
)
@click.option("--name", metavar="NAME", help="The broker's name.  [default: broker-a]")
@click.option("--cluster", metavar="NAME", help="The cluster that it belongs to.  [default: DefaultCluster]")
@click.option(
    "--data",
    "folder",
    metavar="DIR",
    help=f"Where messages are kept (storePathRootDir).  [default: {DEFAULT_FOLDER}/NAME]",
)
@flush_option
@set_option
@click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="RocketMQ's broker.conf. Options given here count more than what it says.",
)
@click.option("--register-as", metavar="KEY", help="The account by which it registers with name servers.")
@click.option("--namesrv-tls", is_flag=True, help="Reach name servers by TLS, with certificates this system trusts.")
@click.option(
    "--namesrv-ca",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Reach name servers by TLS, with certificates that this one signed.",
)
@click.option(
    "--until-end-of-input",
    is_flag=True,
    help="Stop also when the input stream ends, as it does when the program that started this one is gone.",
)
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
    given: tuple[str, ...],
    config: Path | None,
    register_as: str | None,
    namesrv_tls: bool,
    namesrv_ca: Path | None,
    until_end_of_input: bool,
) -> None:
    """Run a broker until ctrl-C or SIGTERM.

    It keeps messages in RocketMQ's files and registers with name servers. Topics have to be created before they are sent
    to, unless autoCreateTopicEnable=true says otherwise.
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
    told = settings_given(given) | {key: text for key, text in keys.items() if text is not None}
    settings = _registering_as(register_as, _settings(config, told, is_open=options.is_open))
    log_to_stderr(options.log_format, settings.broker_name)
    run_until_stopped(
        Broker(settings),
        _show_json if options.as_json else _show_banner,
        (lambda _: end_of_input()) if until_end_of_input else None,
    )


def _settings(config: Path | None, told: Mapping[str, str], *, is_open: bool) -> BrokerSettings:
    """What the command line told first, then the file, then defaults."""
    # While they are read it may listen anywhere: an option may still say that it shall not.
    base = BrokerSettings(
        name_servers=read_name_servers(os.environ.get(NAME_SERVERS_VARIABLE, "")),
        auto_create_topic=False,
        accounts=Path(told["accountsFile"]) if "accountsFile" in told else None,
        open_to_the_network_without_authentication=True,
    )
    in_file = {} if config is None else _properties(config)
    settings = _read(f"{config}", in_file, base)
    settings = _read("--set", told, settings)
    store = _store_settings(settings, in_file.keys() | told.keys())
    return replace(settings, store=store, open_to_the_network_without_authentication=is_open)


def _registering_as(access_key: str | None, settings: BrokerSettings) -> BrokerSettings:
    if access_key is None:
        return settings
    if settings.accounts is None:
        raise InvalidSetting("--register-as names an account; say by --accounts in which file it is")
    account = read_accounts(DiskFiles(), settings.accounts, os.environ).get(access_key)
    if account is None:
        raise InvalidSetting(f"--register-as {access_key}: there is no such account in {settings.accounts}")
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
    """A folder of the broker's own; log files of the size that they have, unless somebody named one."""
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
            "address": _address_words(broker),
            "name servers": ", ".join(map(str, settings.name_servers)) or "none: only clients that know its address",
            "data": str(settings.store.folder),
            "flush": flush_words(settings.store.flush),
            "topics": "created by sending to them" if settings.auto_create_topic else "have to be created first",
            **server_words(broker, settings),
        },
    )


def _address_words(broker: Broker) -> str:
    listening, advertised = str(broker.address), str(broker.advertised_address)
    return listening if listening == advertised else f"{listening}, where clients find it as {advertised}"


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

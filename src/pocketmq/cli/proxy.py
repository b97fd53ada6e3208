"""`pocketmq proxy`: run a gRPC server in front of a cluster, of PocketMQ or of Apache RocketMQ."""

import os
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pocketmq.cli.broker import parse_settings
from pocketmq.cli.cluster_options import name_servers_option
from pocketmq.cli.commands import flag, path_option, port_option, text_option
from pocketmq.cli.programs import log_to_stderr, run_until_stopped
from pocketmq.cli.serve import GRPC_PORT
from pocketmq.cli.server_options import ServerOptions, server_facts, server_options, server_rows, show_banner, show_json
from pocketmq.embedded import grpc_server
from pocketmq.metrics.page import MetricsSettings
from pocketmq.net import ClientTlsFiles, ServerTlsFiles, end_of_input
from pocketmq.protocol.signing import SECRET_VARIABLE, credentials_of

if TYPE_CHECKING:
    from pocketmq.proxy.server import Proxy


@click.command()
@name_servers_option("The name servers of the cluster.")
@text_option("--host", "The address to listen on.", default="127.0.0.1", metavar="HOST")
@port_option("--port", "The port to listen on; 0 is any free port.", default=GRPC_PORT)
@text_option(
    "--access-key",
    f"Without --accounts: sign requests to brokers as this account; its secret is in {SECRET_VARIABLE}.",
    envvar="ROCKETMQ_ACCESS_KEY",
    show_envvar=True,
    metavar="NAME",
)
@flag("--cluster-tls", "Use TLS to name servers and brokers, verified with the certificates of this system.")
@path_option("--cluster-ca", "Use TLS to name servers and brokers, verified with this certificate authority (PEM).")
@flag("--cluster-no-verify", "Use TLS to name servers and brokers, but do not verify their certificates.")
@text_option(
    "--set",
    "limits",
    "A limit of the gRPC server, such as max_clients=100; may be repeated.",
    multiple=True,
    metavar="NAME=VALUE",
)
@flag("--until-end-of-input", "Also stop when stdin ends, as it does when the parent process ends.")
@server_options
def proxy(
    options: ServerOptions,
    namesrv: str,
    host: str,
    port: int,
    access_key: str | None,
    cluster_tls: bool,
    cluster_ca: Path | None,
    cluster_no_verify: bool,
    limits: tuple[str, ...],
    until_end_of_input: bool,
) -> None:
    """Serve RocketMQ 5's clients in front of a cluster until ctrl-C or SIGTERM.

    The official clients of RocketMQ 5 connect to it by gRPC. It is a client of the cluster, which may be PocketMQ or Apache
    RocketMQ 5. `pocketmq serve` has it built in. It needs pocketmq[grpc].
    """
    server = grpc_server(
        namesrv,
        parse_settings(limits),
        host=host,
        port=port,
        credentials=credentials_of(access_key, os.environ),
        accounts=options.accounts,
        tls=options.tls(ServerTlsFiles()),
        cluster_tls=_cluster_tls(cluster_tls, cluster_ca, is_unverified=cluster_no_verify),
        metrics=options.metrics(MetricsSettings()),
        open_to_the_network_without_authentication=options.is_open,
    )
    log_to_stderr(options.log_format, "proxy")
    show = _show_json if options.as_json else _show_banner
    until = (lambda _: end_of_input()) if until_end_of_input else None
    run_until_stopped(server, lambda running: show(running, namesrv), until)


def _cluster_tls(is_on: bool, authority: Path | None, *, is_unverified: bool) -> bool | ssl.SSLContext:
    if authority is None and not is_unverified:
        return is_on
    return ClientTlsFiles(enabled=True, ca=authority, verify=not is_unverified).load() or False


def _show_banner(server: "Proxy", name_servers: str) -> None:
    show_banner(
        "PocketMQ gRPC server",
        {"address": str(server.address), "name servers": name_servers, **server_rows(server, server.settings)},
    )


def _show_json(server: "Proxy", name_servers: str) -> None:
    show_json("proxy", {"name_servers": name_servers, **server_facts(server, server.settings)})

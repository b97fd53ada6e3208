"""Options about who may talk to a server, and whether others can listen: the same for all programs that listen."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from pocketmq.net.tls import ServerTlsFiles, TlsMode

_FILE = click.Path(path_type=Path)

accounts_option = click.option(
    "--accounts",
    type=_FILE,
    metavar="FILE",
    help="Accounts (TOML): every request must be signed by one of them.  [default: nobody is asked]",
)


def tls_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--tls-cert` and its relatives: arguments `tls_cert`, `tls_key`, `tls_client_ca` and `tls_mode`."""
    options = (
        click.option("--tls-cert", type=_FILE, metavar="FILE", help="Listen with TLS and this certificate (PEM)."),
        click.option("--tls-key", type=_FILE, metavar="FILE", help="Its key, if it is not in the same file."),
        click.option(
            "--tls-client-ca", type=_FILE, metavar="FILE", help="Clients must show a certificate that this one signed."
        ),
        click.option(
            "--tls-mode",
            type=click.Choice([mode.value for mode in TlsMode]),
            help="enforcing turns plain text away, permissive lets it in as well.  [default: enforcing]",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def with_tls(
    base: ServerTlsFiles, cert: Path | None, key: Path | None, client_ca: Path | None, mode: str | None
) -> ServerTlsFiles:
    """`base` with what the options say."""
    given: dict[str, Any] = {"cert": cert, "key": key, "client_ca": client_ca, "mode": mode and TlsMode(mode)}
    return replace(base, **{name: value for name, value in given.items() if value is not None})

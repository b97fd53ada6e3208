"""How a program that runs says that it is ready: a banner for people, or one line of JSON for scripts."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from rich.text import Text

from pocketmq import __version__
from pocketmq.cli.screen import screen
from pocketmq.metrics.page import PATH as METRICS_PATH
from pocketmq.metrics.settings import MetricsSettings
from pocketmq.net.address import Address
from pocketmq.net.tls import ServerTlsFiles, TlsMode
from pocketmq.store.settings import FlushMode


def show_banner(title: str, rows: Mapping[str, str]) -> None:
    console = screen()
    console.print(Text(f"{title} {__version__}", "bold"))
    width = max(map(len, rows))
    for label, text in rows.items():
        console.print(Text(f"  {label:<{width}}  {text}"))
    console.print(Text("Ready. Ctrl-C stops it."))
    sys.stdout.flush()


def show_json(program: str, facts: Mapping[str, Any]) -> None:
    ready = {"event": "ready", "program": program, "version": __version__, **facts}
    sys.stdout.write(msgspec.json.encode(ready).decode() + "\n")
    sys.stdout.flush()


def access_words(address: Address, accounts: Path | None, tls: ServerTlsFiles) -> dict[str, str]:
    """Who can talk to somebody who listens there, and who can listen to them."""
    if accounts is not None:
        who = f"{'this machine only' if address.is_loopback else 'everybody'}, signed by an account in {accounts}"
    else:
        who = "this machine only" if address.is_loopback else "EVERYBODY who reaches it, without authentication"
    is_plain_at_home = address.is_loopback and tls.in_use is TlsMode.DISABLED
    return {"open to": who} | ({} if is_plain_at_home else {"TLS": _tls_words(tls)})


def access_facts(address: Address, accounts: Path | None, tls: ServerTlsFiles) -> dict[str, Any]:
    """The same for scripts."""
    return {
        "open_to_the_network": not address.is_loopback,
        "accounts": accounts and str(accounts),
        "tls": tls.in_use.value,
    }


def metrics_words(address: Address | str | None, metrics: MetricsSettings, tls: ServerTlsFiles) -> dict[str, str]:
    """Where the metrics are, if anybody asked for them."""
    if address is None:
        return {}
    is_tls = tls.in_use is not TlsMode.DISABLED and not metrics.address.is_loopback
    return {"metrics": f"{'https' if is_tls else 'http'}://{address}{METRICS_PATH}"}


def metrics_facts(address: Address | str | None, metrics: MetricsSettings, tls: ServerTlsFiles) -> dict[str, Any]:
    """The same for scripts."""
    return {"metrics": metrics_words(address, metrics, tls).get("metrics")}


def _tls_words(tls: ServerTlsFiles) -> str:
    if tls.in_use is TlsMode.DISABLED:
        return "none: what is said can be read, and sent again, by who sees the network"
    if tls.in_use is TlsMode.PERMISSIVE:
        return "for those who speak it; others are served in plain text"
    return "required, with a certificate of each client" if tls.client_ca else "required"


def flush_words(flush: FlushMode) -> str:
    """What a sender may rely on."""
    if flush is FlushMode.SYNC:
        return "sync: a send is answered when it is safe on the disk"
    return "async: a send is answered when it is written; what is not on the disk yet is lost if power fails"

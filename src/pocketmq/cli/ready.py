"""How a program that runs says that it is ready: a banner for people, or one line of JSON for scripts."""

import sys
from collections.abc import Mapping
from typing import Any

import msgspec
from rich.text import Text

from pocketmq import __version__
from pocketmq.cli.screen import screen
from pocketmq.net.address import Address
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


def reached_by(address: Address) -> str:
    """Who can talk to somebody who listens there."""
    return "this machine only" if address.is_loopback else "EVERYBODY who reaches it, without authentication"


def flush_words(flush: FlushMode) -> str:
    """What a sender may rely on."""
    if flush is FlushMode.SYNC:
        return "sync: a send is answered when it is safe on the disk"
    return "async: a send is answered when it is written; what is not on the disk yet is lost if power fails"

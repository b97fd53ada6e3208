"""Asking a server for its page."""

import re
import urllib.request

from pocketmq import Server


def page_of(server: Server) -> str:
    with urllib.request.urlopen(f"http://{server.metrics_address}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text: str = answer.read().decode()
        return text


def families_of(server: Server) -> dict[str, str]:
    """Every name with its kind."""
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", page_of(server), re.MULTILINE))

"""Settings of the console. It refuses to listen outside loopback without a login."""

from ipaddress import ip_network
from pathlib import Path
from typing import Final

import msgspec

from pocketmq.errors import InvalidSetting
from pocketmq.net import LARGEST_PORT, Address

DEFAULT_PORT: Final = 9878
"""Near the name server's port 9876."""


class ConsoleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Address, access, load and limits of the console."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    users: Path | None = None
    """The users file; None: no login, which is only allowed on loopback."""
    read_only: bool = False
    """No user can change anything."""
    allowed_hosts: tuple[str, ...] = ()
    """Allowed host names besides IP addresses and localhost; protects against DNS rebinding."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks of proxies whose `X-Forwarded-For` header is trusted."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    picture: Path | None = None
    """An SVG that the overview shows as soon as the file exists."""

    watched_s: float = 2.0
    """The interval of queries to brokers while a page is open."""
    unwatched_s: float = 15.0
    """The interval while no page is open, for the charts."""
    rest_factor: float = 40.0
    """A query is not repeated for its duration times this factor, so that large clusters get fewer queries."""
    cache_s: float = 2.0
    """How long the result of a query is cached for all pages."""
    page_timeout_s: float = 5.0
    """How long a page waits for brokers before it shows an error."""

    rows_per_page: int = 50
    body_preview_bytes: int = 64 * 1024
    """The part of a body that a page shows; the whole body can be downloaded."""
    form_bytes: int = 8 * 1024 * 1024
    """The largest form; it must fit an edited dead letter."""
    session_s: float = 8 * 3600.0
    max_sessions: int = 1_000
    max_streams: int = 200
    """The limit on open live pages."""
    max_login_failures: int = 10
    """The limit per address and minute. A user who has logged in from an address before has a separate limit there."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= LARGEST_PORT:
            raise InvalidSetting(f"port {self.port} is invalid; it must be from 0 (any free port) to {LARGEST_PORT}")
        if self.tls_key is not None and self.tls_cert is None:
            raise InvalidSetting("--tls-key needs --tls-cert")
        for proxy in self.trusted_proxies:
            try:
                ip_network(proxy)
            except ValueError as error:
                raise InvalidSetting(
                    f"--trusted-proxy {proxy}: {error}; expected for example 10.1.2.3 or 10.1.0.0/16"
                ) from None
        if not self.address.is_loopback and self.users is None:
            raise InvalidSetting(
                f"other machines can connect to {self.host}, and there is no login: every client could read and change everything. "
                "Create a users file with `pocketmq console user add NAME --users FILE` and start with --users FILE, or listen "
                "on 127.0.0.1"
            )

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)

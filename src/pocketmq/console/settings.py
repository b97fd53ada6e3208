"""Settings of the console, and what it refuses to be: open to others without a login."""

from ipaddress import ip_network
from pathlib import Path
from typing import Final

import msgspec

from pocketmq.errors import InvalidSetting
from pocketmq.net.address import LARGEST_PORT, Address

DEFAULT_PORT: Final = 9878
"""Beside the name server's 9876."""


class ConsoleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the console listens, for whom, and how much it asks, keeps and shows."""

    # for whom
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    users: Path | None = None
    """The file of those who may log in; None: nobody is asked, which is only possible on loopback."""
    read_only: bool = False
    """Nobody can change anything, whoever they are."""
    allowed_hosts: tuple[str, ...] = ()
    """Names, beside addresses and localhost, by which browsers may call it. Others are taken for DNS rebinding."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks of proxies whose `X-Forwarded-For` is believed. Of all others the address of the socket counts."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    picture: Path | None = None
    """An SVG that the overview shows, as soon as it is there."""

    # how much it asks
    watched_s: float = 2.0
    """Between two looks at the brokers, while somebody watches."""
    unwatched_s: float = 15.0
    """… and while nobody does: the charts go on."""
    rest_factor: float = 40.0
    """What a question of many parts took, times this, is how long it rests at least: large clusters are asked less often."""
    answer_s: float = 2.0
    """How long an answer that a page needed is good for others who look at the same."""
    page_timeout_s: float = 5.0
    """How long a page waits for brokers before it says that they do not answer."""

    # how much it keeps and shows
    rows_per_page: int = 50
    body_preview_bytes: int = 64 * 1024
    """What is shown of a body; the rest can be downloaded."""
    form_bytes: int = 8 * 1024 * 1024
    """The largest form that is read: an edited dead letter is in one."""
    session_s: float = 8 * 3600.0
    max_sessions: int = 1_000
    max_streams: int = 200
    """Browsers that are kept up to date at the same time."""
    max_login_failures: int = 10
    """Of one address in a minute; a user who logged in from there before has as many of its own."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= LARGEST_PORT:
            raise InvalidSetting(f"port {self.port} is none; it must be from 0 (any free one) to {LARGEST_PORT}")
        if self.tls_key is not None and self.tls_cert is None:
            raise InvalidSetting("--tls-key without --tls-cert: name the certificate, too")
        for proxy in self.trusted_proxies:
            try:
                ip_network(proxy)
            except ValueError as error:
                raise InvalidSetting(f"--trusted-proxy {proxy}: {error}; write 10.1.2.3 or 10.1.0.0/16") from None
        if not self.address.is_loopback and self.users is None:
            raise InvalidSetting(
                f"{self.host} can be reached by other machines, and there is no login: whoever reaches the console could read "
                "and change everything. Make a file of users by `pocketmq console user add NAME --users FILE`, and give it by "
                "--users FILE; or listen on 127.0.0.1"
            )

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)

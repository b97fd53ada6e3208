"""The address of the metrics page, and RocketMQ's names for it."""

from typing import Final

import msgspec

from pocketmq.errors import InvalidSetting
from pocketmq.model.setting_keys import NUMBER, SWITCH, TEXT, Form, Key
from pocketmq.net import LARGEST_PORT, Address

DEFAULT_PORT: Final = 5557
"""RocketMQ's default."""


class MetricsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the metrics page. It is off and on loopback by default, because it shows the names of all topics and groups.

    If other machines can reach it, it uses TLS if the server does, and requires an account if the server has accounts.
    """

    enabled: bool = False
    """`PROM` exposes Prometheus metrics, `DISABLE` does not."""
    host: str = "127.0.0.1"
    """The address of the metrics page."""
    port: int = DEFAULT_PORT
    """The port of the metrics page. 0: any free port."""
    without_authentication: bool = False
    """The metrics page requires no account, also where other machines can reach it."""
    max_connections: int = 16
    """Limit on connections. One more is closed at once."""
    request_s: float = 10.0
    """How long a request may take, and how long an idle connection stays open, in seconds."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= LARGEST_PORT:
            raise InvalidSetting(
                f"invalid metrics port {self.port}; it must be from 0 (any free port) to {LARGEST_PORT}"
            )
        if self.max_connections <= 0 or self.request_s <= 0:
            raise InvalidSetting("max_connections and request_s of the metrics page must be above 0")

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)


def _exporter(text: str) -> bool:
    if text.upper() not in ("PROM", "DISABLE"):
        raise ValueError("PROM or DISABLE; metrics are not pushed to a collector")
    return text.upper() == "PROM"


KEYS: Final[dict[str, Key]] = {
    "metricsExporterType": Key("metrics.enabled", Form(_exporter, lambda on: "PROM" if on else "DISABLE")),
    "metricsPromExporterHost": Key("metrics.host", TEXT),
    "metricsPromExporterPort": Key("metrics.port", NUMBER),
    "metricsWithoutAuthentication": Key("metrics.without_authentication", SWITCH),
}

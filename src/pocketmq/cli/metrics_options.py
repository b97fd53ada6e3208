"""Where a server's metrics are, on the command line."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import click
from msgspec.structs import replace

from pocketmq.errors import InvalidSetting
from pocketmq.metrics.settings import MetricsSettings
from pocketmq.net.address import LARGEST_PORT

OPEN_METRICS_FLAG: Final = "--metrics-without-authentication"


class MetricsWishes(NamedTuple):
    """What the command line says about metrics."""

    port: int | None = None
    host: str | None = None
    is_open: bool = False

    def over(self, base: MetricsSettings) -> MetricsSettings:
        """`base` with what the options say; InvalidSetting when they name a host, but no port."""
        given: dict[str, Any] = {"host": self.host, "port": self.port, "enabled": self.port is not None or None}
        given["without_authentication"] = self.is_open or None
        settings = replace(base, **{name: value for name, value in given.items() if value is not None})
        if (self.host or self.is_open) and not settings.enabled:
            raise InvalidSetting(f"--metrics-host and {OPEN_METRICS_FLAG} need --metrics-port PORT")
        return settings

    def keys(self) -> dict[str, str]:
        """The same as settings of a broker."""
        keys = {} if self.port is None else {"metricsExporterType": "PROM", "metricsPromExporterPort": str(self.port)}
        keys |= {"metricsPromExporterHost": self.host} if self.host else {}
        return keys | ({"metricsWithoutAuthentication": "true"} if self.is_open else {})

    def options(self, port: int) -> list[str]:
        """The same for another program, on another port."""
        host = ["--metrics-host", self.host] if self.host else []
        return ["--metrics-port", str(port), *host, *([OPEN_METRICS_FLAG] if self.is_open else [])]


def metrics_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--metrics-port` and its relatives: arguments `metrics_port`, `metrics_host` and `metrics_is_open`."""
    options = (
        click.option(
            "--metrics-port",
            type=click.IntRange(0, LARGEST_PORT),
            metavar="PORT",
            help="Tell metrics for Prometheus at http://127.0.0.1:PORT/metrics; 0 is any free port.  [default: none]",
        ),
        click.option(
            "--metrics-host",
            metavar="HOST",
            help="Where the metrics are. Elsewhere than on loopback they need an account that may look at the cluster, "
            "if there are accounts, and TLS, if there is a certificate.  [default: 127.0.0.1]",
        ),
        click.option(
            OPEN_METRICS_FLAG, "metrics_is_open", is_flag=True, help="Tell metrics to everybody who reaches them."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command

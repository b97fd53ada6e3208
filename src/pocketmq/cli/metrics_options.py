"""Where a server's metrics are, on the command line."""

import click

from pocketmq.net.address import LARGEST_PORT

metrics_port_option = click.option(
    "--metrics-port",
    type=click.IntRange(0, LARGEST_PORT),
    metavar="PORT",
    help="Tell metrics for Prometheus at http://HOST:PORT/metrics; 0 is any free port.  [default: none]",
)

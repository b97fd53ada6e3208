"""The option of all programs that write a log: in which form."""

import click

from pocketmq.metrics.log_lines import FORMS

log_format_option = click.option(
    "--log-format",
    type=click.Choice(FORMS),
    default="text",
    show_default=True,
    help="How the log on the error stream is written, a line for each event.",
)

"""`pocketmq demo`: simulate a shop's day with a broker and Spark, and account for every message at the end."""

from pathlib import Path

import click

from pocketmq import demo as shop
from pocketmq.cli.commands import ExitCode, flag, number_option, port_option, program_name
from pocketmq.cli.output import screen, show_json, show_text

DEFAULT_FOLDER = Path("pocketmq-demo")
DEFAULT_MESSAGES = 100_000
LEAST_MESSAGES = 200
MOST_MESSAGES = 50_000_000


@click.command()
@number_option(
    "--messages", "The number of orders.", least=LEAST_MESSAGES, most=MOST_MESSAGES, default=DEFAULT_MESSAGES
)
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=DEFAULT_FOLDER,
    metavar="DIR",
    show_default=True,
    help="The folder of the demo. Without --resume, an earlier demo in it is removed.",
)
@click.option("--seed", type=int, default=1, metavar="N", show_default=True, help="The seed of the random data.")
@flag("--resume", "Continue an interrupted demo in DIR, with its --messages and --seed.")
@flag("--keep", "Keep the broker and the web console running at the end, until ctrl-C.")
@port_option("--console-port", "The port of the web console; 0 is any free port.", default=0)
@flag("--json", "as_json", "Print only the result, as JSON.")
def demo(messages: int, folder: Path, seed: int, resume: bool, keep: bool, console_port: int, as_json: bool) -> int:
    """Simulate a shop's day: broker, web console, producers, consumers and a Spark pipeline in one command.

    Orders, payments and reminders are sent, consumed, retried, cleaned and aggregated. At the end, a table shows whether
    every message is accounted for, and where the lake and the plot are. The demo takes about two minutes.

    \b
    Exit code: 0    every message is accounted for
               1    messages are missing or duplicated
               3    a process failed; continue with --resume
               130  interrupted; continue with --resume
    """

    def show(report: "shop.Report") -> None:
        if as_json:
            show_json([report.as_data()])
        else:
            screen().print(report.render())
            show_text(report.next_steps(program_name()))

    settings = shop.DemoSettings(folder, messages, seed, resume, console_port, keep)
    try:
        report = shop.run(settings, show, is_quiet=as_json)
    except KeyboardInterrupt:
        click.echo(f"No message is lost. Continue with: pocketmq demo --resume --dir {folder}", err=True)
        raise
    return ExitCode.OK if report.holds else ExitCode.REPAIRABLE

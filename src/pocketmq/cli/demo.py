"""`pocketmq demo`: a shop's day on a broker and a Spark of its own, with every message accounted for at the end."""

from pathlib import Path

import click

from pocketmq import demo as shop
from pocketmq.cli.commands import ExitCode, called
from pocketmq.cli.screen import screen, show_json, tell
from pocketmq.net.address import LARGEST_PORT

DEFAULT_FOLDER = Path("pocketmq-demo")
DEFAULT_MESSAGES = 100_000
LEAST_MESSAGES = 200
MOST_MESSAGES = 50_000_000


@click.command()
@click.option(
    "--messages",
    type=click.IntRange(LEAST_MESSAGES, MOST_MESSAGES),
    default=DEFAULT_MESSAGES,
    metavar="N",
    show_default=True,
    help="How many orders are sent.",
)
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=DEFAULT_FOLDER,
    metavar="DIR",
    show_default=True,
    help="Where everything is kept. An earlier demo in it is removed, unless --resume is given.",
)
@click.option("--seed", type=int, default=1, metavar="N", show_default=True, help="Another seed is another day.")
@click.option(
    "--resume", is_flag=True, help="Go on with the demo in DIR that was cut off; --messages and --seed are its own."
)
@click.option("--keep", is_flag=True, help="Let broker and web console run at the end, until ctrl-C.")
@click.option(
    "--console-port",
    type=click.IntRange(0, LARGEST_PORT),
    default=0,
    metavar="PORT",
    show_default=True,
    help="Where the web console listens; 0 is any free port.",
)
@click.option("--json", "as_json", is_flag=True, help="Nothing but the result, as JSON.")
def demo(messages: int, folder: Path, seed: int, resume: bool, keep: bool, console_port: int, as_json: bool) -> int:
    """A shop's day: broker, web console, producers, consumers and a Spark pipeline, in one command.

    Orders, payments and reminders are sent, read, retried, cleaned and summed up. At the end a table tells whether every message is
    accounted for, and where lake and plot are. It needs no input, and two minutes.

    \b
    Exit code: 0    every message is accounted for
               1    messages are missing, or too many
               3    something could not start, or ended; go on with --resume
               130  interrupted; go on with --resume
    """

    def show(report: "shop.Report") -> None:
        if as_json:
            show_json([report.as_data()])
        else:
            screen().print(report.render())
            tell(report.next_steps(called()))

    settings = shop.DemoSettings(folder, messages, seed, resume, console_port, keep)
    try:
        report = shop.run(settings, show, is_quiet=as_json)
    except KeyboardInterrupt:
        click.echo(f"Nothing is lost: pocketmq demo --resume --dir {folder}", err=True)
        raise
    return ExitCode.OK if report.holds else ExitCode.REPAIRABLE

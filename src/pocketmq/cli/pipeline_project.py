"""`pocketmq pipeline new` and `run`: a project for Spark's Declarative Pipelines, made and run, with a broker if asked."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

import pocketmq
from pocketmq.cli.asking import name_servers_option
from pocketmq.cli.commands import ExitCode, called
from pocketmq.cli.screen import Column, show_rows, tell
from pocketmq.files import DiskFiles
from pocketmq.model.human import count

BROKER_FOLDER = Path(".data", "broker")
"""Of a project: what the broker of `--broker` keeps, so that the next run goes on."""


@click.command("new", short_help="Make a project: a pipeline of your own, a sample, a test and a README.")
@click.argument("name")
def new(name: str) -> None:
    """Make a project in the folder NAME: a pipeline for spark-pipelines, a sample, a test and a README."""
    for path in pocketmq.pipelines.make_project(name, Path().absolute(), DiskFiles(shared=True)):
        tell(f"  {path}")
    install = pocketmq.pipelines.what_to_install()
    tell("\nNext:")
    for line in (*([install] if install else []), f"cd {name}", f"{called()} pipeline run --broker"):
        tell(f"  {line}")


@click.command("run", short_help="Run the project in this folder, and show what is in its tables.")
@click.option(
    "--project",
    type=click.Path(path_type=Path),
    default=Path(),
    metavar="FOLDER",
    help="Where spark-pipeline.yml is.  [default: here]",
)
@click.option("--broker", "with_broker", is_flag=True, help="Start a broker for the run, with the messages of sample/.")
@name_servers_option("The name servers of the cluster, without --broker.")
@click.option("--verbose", is_flag=True, help="Show all that Spark says.")
@click.argument("arguments", nargs=-1)
def run(project: Path, with_broker: bool, namesrv: str, verbose: bool, arguments: tuple[str, ...]) -> int:
    """Run the project in this folder by spark-pipelines, and show what is in its tables.

    ARGUMENTS behind -- are for spark-pipelines, such as: -- --full-refresh-all

    \b
    Exit code: that of spark-pipelines, 0 when all went well
               3    a library is missing
               64   there is no project
               130  interrupted; nothing of Spark is left
    """
    folder = project.absolute()
    pocketmq.pipelines.check_project(folder, DiskFiles())
    with _cluster(folder, with_broker=with_broker, otherwise=namesrv) as name_server:
        console = Console(stderr=True, highlight=False)
        with console.status(Text("Spark runs …")):
            done = pocketmq.pipelines.run_project(
                folder,
                arguments,
                name_server=name_server,
                tell=lambda line: console.print(Text(line)),
                everything=verbose,
            )
    if done.code != ExitCode.OK:
        click.echo("\n".join(done.besides), err=True)
        click.echo(f"pocketmq: spark-pipelines ended with {done.code}; what it said stands above", err=True)
        return done.code
    _show_tables(folder)
    return ExitCode.OK


@contextmanager
def _cluster(folder: Path, *, with_broker: bool, otherwise: str) -> Iterator[str]:
    """The name server to use: that of a broker for the run, or the one that was named."""
    if not with_broker:
        yield otherwise
        return
    sample = pocketmq.pipelines.read_sample(folder, DiskFiles())
    with pocketmq.Server(data=folder / BROKER_FOLDER) as server:
        click.echo(f"a broker runs, name server {server.name_server}", err=True)
        for topic, many in pocketmq.pipelines.send_sample(server.name_server, sample).items():
            click.echo(f"made the topic {topic} with {count(many, 'message')}", err=True)
        yield server.name_server


def _show_tables(folder: Path) -> None:
    for name, table in pocketmq.pipelines.table_rows(folder, DiskFiles()).items():
        tell(f"\ntable {name}, {count(table.total, 'row')}")
        columns = [Column(field) for field in (table.rows[0] if table.rows else {})]
        show_rows(table.rows, columns, as_json=False, empty="none")

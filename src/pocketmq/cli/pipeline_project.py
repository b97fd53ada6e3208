"""`pocketmq pipeline new` and `run`: create and run a project for Spark Declarative Pipelines."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

import pocketmq
from pocketmq.cli.cluster_options import name_servers_option
from pocketmq.cli.commands import ExitCode, program_name
from pocketmq.cli.output import Column, show_rows, show_text
from pocketmq.files import DiskFiles
from pocketmq.model.human import count

BROKER_FOLDER = Path(".data", "broker")
"""The data of the broker of `--broker`, so that the next run continues."""


@click.command("new", short_help="Create a project with a pipeline, sample messages, a test and a README.")
@click.argument("name")
def new(name: str) -> None:
    """Create a project in the folder NAME, with a pipeline for spark-pipelines, sample messages, a test and a README."""
    for path in pocketmq.pipelines.make_project(name, Path().absolute(), DiskFiles(shared=True)):
        show_text(f"  {path}")
    install = pocketmq.pipelines.install_command()
    show_text("\nNext:")
    for line in (*([install] if install else []), f"cd {name}", f"{program_name()} pipeline run --broker"):
        show_text(f"  {line}")


@click.command("run", short_help="Run the project in this folder, and show its tables.")
@click.option(
    "--project",
    type=click.Path(path_type=Path),
    default=Path(),
    metavar="FOLDER",
    help="The folder of spark-pipeline.yml.  [default: the current folder]",
)
@click.option(
    "--broker", "with_broker", is_flag=True, help="Start a broker for this run, with the messages of sample/."
)
@name_servers_option("The name servers of the cluster, without --broker.")
@click.option("--verbose", is_flag=True, help="Show all output of Spark.")
@click.argument("arguments", nargs=-1)
def run(project: Path, with_broker: bool, namesrv: str, verbose: bool, arguments: tuple[str, ...]) -> int:
    """Run the project in this folder with spark-pipelines, and show its tables.

    ARGUMENTS after -- are passed to spark-pipelines, such as: -- --full-refresh-all

    \b
    Exit code: that of spark-pipelines, 0 for success
               3    a library is missing
               64   no project found
               130  interrupted; Spark has stopped
    """
    folder = project.absolute()
    pocketmq.pipelines.check_project(folder, DiskFiles())
    with _cluster(folder, with_broker=with_broker, default=namesrv) as name_server:
        console = Console(stderr=True, highlight=False)
        with console.status(Text("running Spark …")):
            done = pocketmq.pipelines.run_project(
                folder,
                arguments,
                name_server=name_server,
                show=lambda line: console.print(Text(line)),
                everything=verbose,
            )
    if done.code != ExitCode.OK:
        click.echo("\n".join(done.besides), err=True)
        click.echo(f"pocketmq: spark-pipelines exited with code {done.code}; see its output above", err=True)
        return done.code
    _show_tables(folder)
    return ExitCode.OK


@contextmanager
def _cluster(folder: Path, *, with_broker: bool, default: str) -> Iterator[str]:
    """The name server: that of a broker for this run, or the one of --namesrv."""
    if not with_broker:
        yield default
        return
    sample = pocketmq.pipelines.read_sample(folder, DiskFiles())
    with pocketmq.Server(data=folder / BROKER_FOLDER) as server:
        click.echo(f"started a broker, name server {server.name_server}", err=True)
        for topic, many in pocketmq.pipelines.send_sample(server.name_server, sample).items():
            click.echo(f"created topic {topic} with {count(many, 'message')}", err=True)
        yield server.name_server


def _show_tables(folder: Path) -> None:
    for name, table in pocketmq.pipelines.table_rows(folder, DiskFiles()).items():
        show_text(f"\ntable {name}, {count(table.total, 'row')}")
        columns = [Column(field) for field in (table.rows[0] if table.rows else {})]
        show_rows(table.rows, columns, as_json=False, empty="none")

"""`pocketmq dlq export`: dead letters as JSON lines, page by page, so that any number of them goes through."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from pocketmq.cli.asking import Cluster, agreed, on_a_cluster, yes_option
from pocketmq.cli.commands import ExitCode
from pocketmq.cli.completion import group_argument
from pocketmq.cli.dlq_rows import letter_row
from pocketmq.cli.screen import count, late_bar
from pocketmq.clock import SystemClock
from pocketmq.files import DiskFiles
from pocketmq.store.message_fields import BodyForm

if TYPE_CHECKING:
    from pocketmq.client.administration.dead_letters import Letter
    from pocketmq.client.blocking_admin import Admin

PAGE: Final = 500
"""Letters that are read at once."""


@click.command("export")
@on_a_cluster
@group_argument
@click.option("--to", "path", type=click.Path(path_type=Path), metavar="FILE", help="Write there.")
@click.option(
    "--body",
    "form",
    type=click.Choice([form.value for form in BodyForm]),
    default=BodyForm.BASE64.value,
    show_default=True,
    help="How bodies are written; base64 keeps every byte.",
)
@yes_option
def export(cluster: Cluster, group: str, path: Path | None, form: str, yes: bool) -> int:
    """Write all dead letters of a group as JSON, one on each line, to a file or the standard output.

    Each line has where the letter was sent to, why it died, its properties and its body. The letters stay where they are.
    """
    if path is not None and DiskFiles().status(path) is not None and not agreed(f"Overwrite {path}?", yes=yes):
        return ExitCode.REPAIRABLE
    with cluster.long_admin() as admin:
        total = admin.dead_letters.count(group)
        if not total:
            admin.groups.describe(group)  # GroupNotFound: a name may be mistyped
        rows = (letter_row(letter, BodyForm(form)) for letter in _letters(admin, group, total))
        if path is None:
            many = _write(rows, lambda line: sys.stdout.write(line.decode()))
            sys.stdout.flush()
        else:
            many = _write_file(rows, path)
    click.echo(f"{count(many, 'dead letter')} of group {group}{'' if path is None else f' in {path}'}.", err=True)
    return ExitCode.OK


def _letters(admin: "Admin", group: str, total: int) -> "Iterator[Letter]":
    done = 0
    with late_bar(SystemClock(), "letters", in_bytes=False) as bar:
        for queue, begin, end in admin.dead_letters.ranges(group):
            for at in range(begin, end, PAGE):
                letters = admin.dead_letters.in_queue(group, queue, at, min(end, at + PAGE))
                yield from letters
                done += len(letters)
                bar.update(done, max(done, total))


def _write(rows: Iterator[dict[str, Any]], put: Callable[[bytes], object]) -> int:
    many = 0
    for row in rows:
        put(msgspec.json.encode(row) + b"\n")
        many += 1
    return many


def _write_file(rows: Iterator[dict[str, Any]], path: Path) -> int:
    """Beside the file first: one that is there stays whole until all letters are written."""
    files = DiskFiles()
    draft = path.with_name(f"{path.name}.part")
    with files.open(draft, create=True) as file:
        file.truncate(0)
        end = 0

        def put(line: bytes) -> None:
            nonlocal end
            file.write_at(end, line)
            end += len(line)

        try:
            many = _write(rows, put)
            file.sync()
        except BaseException:
            files.unlink(draft)
            raise
    files.replace(draft, path)
    return many

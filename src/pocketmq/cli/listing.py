"""What commands list: things that a cluster knows by name, alone or with what is known about each; or as many as --limit says."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from pocketmq.cli.asking import Cluster
from pocketmq.cli.rows_screen import Column, Row, show_rows
from pocketmq.cli.screen import late_bar
from pocketmq.clock import SystemClock

if TYPE_CHECKING:
    from pocketmq.client.blocking_admin import Admin


def limit_option(default: int, text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`--limit` of a command that reads no more than so many; `text` says so many of what."""
    return click.option("--limit", type=click.IntRange(1), default=default, show_default=True, metavar="N", help=text)


def show_some(rows: Iterable[Row], columns: Sequence[Column], *, as_json: bool, empty: str, more: str) -> None:
    """Rows that may not be all; `more` says why, and is empty when they are."""
    show_rows(rows, columns, as_json=as_json, empty=empty)
    if more:
        click.echo(f"There may be more: {more}", err=True)


def show_named(
    cluster: Cluster,
    names: Callable[["Admin"], Sequence[str]],
    row_of: Callable[["Admin", str], Row],
    columns: Sequence[Column],
    *,
    is_long: bool,
    as_json: bool,
    empty: str,
) -> None:
    """List things, the first of the `columns` being their name; all of them when it is a long list, by a question for each."""
    kind = columns[0].field
    if is_long:
        rows: Iterable[Row] = _described(cluster, names, row_of, f"{kind}s")
    else:
        with cluster.admin() as admin:
            rows, columns = [{kind: name} for name in names(admin)], columns[:1]
    show_rows(rows, columns, as_json=as_json, empty=empty)


def _described(
    cluster: Cluster,
    names: Callable[["Admin"], Sequence[str]],
    row_of: Callable[["Admin", str], Row],
    what: str,
) -> list[Row]:
    """That many questions may take their time."""
    rows: list[Row] = []
    with cluster.long_admin() as admin, late_bar(SystemClock(), what, in_bytes=False) as bar:
        found = names(admin)
        for at, name in enumerate(found, 1):
            rows.append(row_of(admin, name))
            bar.update(at, len(found))
    return rows

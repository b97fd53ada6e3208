"""`pocketmq dlq`: count, show, replay, export and drop the dead letters of consumer groups."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

import pocketmq
from pocketmq.cli.cluster_options import Cluster, cluster_options, complete_topic, group_argument, limit_option
from pocketmq.cli.commands import (
    CommandGroup,
    ExitCode,
    choice_option,
    flag,
    number_option,
    path_option,
    text_option,
    yes_option,
)
from pocketmq.cli.output import (
    CELL_BODY_BYTES,
    Change,
    Column,
    body_cell,
    body_option,
    change_options,
    confirm,
    json_option,
    late_bar,
    show_json,
    show_rows,
    show_text,
    texts,
)
from pocketmq.errors import PocketMQError
from pocketmq.files import DiskFiles
from pocketmq.model.human import count, local_time, number
from pocketmq.model.properties import ORIGIN_MESSAGE_ID
from pocketmq.store.tools.message_fields import BodyForm, fields_of

if TYPE_CHECKING:
    from pocketmq.client.admin.dead_letters import Letter, Resent


def dead_letter_row(letter: "Letter", form: BodyForm, most_bytes: int | None = None) -> dict[str, Any]:
    """A dead letter as a row. For a table, `most_bytes` limits the body."""
    fields = fields_of(letter.message, form, most_bytes)
    return {
        "group": letter.group,
        "topic": letter.topic,
        "id": letter.original_id,
        "reason": letter.reason,
        "attempts": letter.attempts,
        "died": local_time(letter.died_ms),
        "died_ms": letter.died_ms,
        "broker": letter.queue.broker_name,
        "queue": letter.queue.queue_id,
        "queue_offset": letter.message.queue_offset,
        "tags": fields["tags"],
        "keys": fields["keys"],
        "properties": fields["properties"],
        **{name: fields[name] for name in ("body", "body_error", "body_cut") if name in fields},
    }


PAGE: Final = 500
"""Dead letters per request."""


@click.command("export")
@cluster_options
@group_argument
@path_option("--to", "path", "Write to this file instead of stdout.")
@choice_option(
    "--body", "form", "The format of bodies; base64 keeps every byte.", of=BodyForm, default=BodyForm.BASE64.value
)
@yes_option
def export(cluster: Cluster, group: str, path: Path | None, form: str, yes: bool) -> None:
    """Write all dead letters of a group as JSON lines to a file or stdout.

    Each line has the original topic, the reason of the failure, the properties and the body. The dead letters are not deleted.
    """
    if path is not None and DiskFiles().status(path) is not None:
        confirm(f"Overwrite {path}?", yes=yes)
    with cluster.long_admin() as admin:
        total = admin.dead_letters.count(group)
        if not total:
            admin.groups.describe(group)  # raises GroupNotFound for a mistyped name
        rows = (dead_letter_row(letter, BodyForm(form)) for letter in _letters(admin, group, total))
        if path is None:
            many = _write(rows, lambda line: sys.stdout.write(line.decode()))
            sys.stdout.flush()
        else:
            many = _write_file(rows, path)
    click.echo(f"{count(many, 'dead letter')} of group {group}{'' if path is None else f' in {path}'}.", err=True)


def _letters(admin: "pocketmq.Admin", group: str, total: int) -> "Iterator[Letter]":
    done = 0
    with late_bar("letters", in_bytes=False) as bar:
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
    """Write to a temporary file first, so that an existing file stays complete until all dead letters are written."""
    files = DiskFiles()
    draft = path.with_name(f"{path.name}.part")
    with files.open(draft, create=True) as file:
        file.truncate(0)
        end = 0

        def put(line: bytes) -> None:
            nonlocal end
            file.write_at(end, line)
            end += len(line)

        with ExitStack() as undo:
            undo.callback(files.unlink, draft)
            many = _write(rows, put)
            file.sync()
            undo.pop_all()
    files.replace(draft, path)
    return many


MAX_AT_ONCE = 50
"""Dead letters that are sent between two updates of the progress bar."""
_COUNTS = (Column("group"), Column("letters", "dead letters", shown_as=number))
_LETTERS = (
    *texts("died", "topic", "id", "keys"),
    Column("attempts", shown_as=number),
    Column("reason", shown_as=lambda reason: reason or "unknown"),
    Column("body", shown_as=str),
)


@click.group("dlq", cls=CommandGroup)
def dlq_commands() -> None:
    """Dead letters of consumer groups: messages that failed all retries."""


@dlq_commands.command("ls")
@cluster_options
@json_option
def ls(cluster: Cluster, as_json: bool) -> None:
    """List the groups with dead letters, and their number."""
    with cluster.admin() as admin:
        counts = admin.dead_letters.counts()
    rows = [{"group": group, "letters": letters} for group, letters in counts.items() if letters]
    show_rows(rows, _COUNTS, as_json=as_json, empty="There are no dead letters.")


@dlq_commands.command("show")
@cluster_options
@group_argument
@limit_option(100, "Show at most N dead letters.")
@flag("--newest", "Show the newest instead of the oldest.")
@body_option
@json_option
def show(cluster: Cluster, group: str, limit: int, newest: bool, form: str, as_json: bool) -> None:
    """Show the dead letters of a group, oldest first, with original topic, attempts and the reason of the failure."""
    with cluster.admin() as admin:
        total = _letter_count(admin, group)
        letters = admin.dead_letters.read(group, limit=limit, newest=newest)
    rows = (_shown(letter, BodyForm(form), as_json=as_json) for letter in letters)
    show_rows(rows, _LETTERS, as_json=as_json, empty=f"Group {group} has no dead letters.")
    if len(letters) < total:
        click.echo(f"{len(letters):,} of {count(total, 'dead letter')}; raise --limit to see more.", err=True)


@dlq_commands.command("replay")
@cluster_options
@group_argument
@text_option("--id", "ids", "Only the dead letter with this id; may be repeated.", multiple=True, metavar="ID")
@number_option("--limit", "Only the N oldest.  [default: all]")
@flag("--newest", "With --limit: the newest instead of the oldest.")
@text_option(
    "--topic",
    "Send them to this topic instead of their original topics.",
    shell_complete=complete_topic,
    metavar="NAME",
)
@change_options
def replay(
    cluster: Cluster,
    group: str,
    ids: tuple[str, ...],
    limit: int | None,
    newest: bool,
    topic: str | None,
    change: Change,
) -> int:
    """Send dead letters again. All consumer groups of the topic receive them.

    The dead letters are not deleted, so a second replay sends them a second time.

    \b
    Exit code: 0  all were sent
               1  not confirmed, nothing sent
               3  some were not sent
    """
    letters = _chosen(cluster, group, ids, limit, newest=newest)
    if not change.as_json:
        _show_plan(group, letters, topic)
    if not letters:
        return ExitCode.OK
    if not change.is_confirmed(f"Send {count(len(letters), 'message')}?"):
        rows = ({**dead_letter_row(letter, BodyForm.NONE), "sent_as": None, "problem": ""} for letter in letters)
        change.show_result(rows, "")
        return ExitCode.OK
    return _show_outcome(_send(cluster, letters, topic), as_json=change.as_json)


@dlq_commands.command("drop")
@cluster_options
@group_argument
@change_options
def drop(cluster: Cluster, group: str, change: Change) -> None:
    """Delete all dead letters of a group. RocketMQ cannot delete single messages."""
    with cluster.admin() as admin:
        letters = _letter_count(admin, group)
    change.show_text(
        f"{count(letters, 'dead letter')} of group {group} will be deleted; `pocketmq dlq export {group}` keeps a copy."
    )
    is_done = bool(letters) and change.is_confirmed("Delete them?")
    if is_done:
        with cluster.admin() as admin:
            admin.dead_letters.drop(group)
    change._replace(dry_run=not is_done).show_result([{"group": group, "letters": letters}], "Deleted.")


dlq_commands.add_command(export)


def _shown(letter: "Letter", form: BodyForm, *, as_json: bool) -> dict[str, Any]:
    """A row; for a table with the beginning of the body."""
    if as_json:
        return dead_letter_row(letter, form)
    row = dead_letter_row(letter, form, CELL_BODY_BYTES)
    return {**row, "body": body_cell(row)}


def _chosen(cluster: Cluster, group: str, ids: tuple[str, ...], limit: int | None, *, newest: bool) -> "list[Letter]":
    with cluster.admin() as admin:
        total = _letter_count(admin, group)
        most = limit if limit is not None and not ids else max(1, total)
        letters = admin.dead_letters.read(group, limit=most, newest=newest)
    if not ids:
        return letters
    chosen = [letter for letter in letters if _ids(letter) & set(ids)]
    known = {one for letter in chosen for one in _ids(letter)}
    if missing := [one for one in ids if one not in known]:
        raise PocketMQError(f"group {group} has no dead letter {missing[0]}; `pocketmq dlq show {group}` lists them")
    return chosen


def _ids(letter: "Letter") -> set[str]:
    """Both ids of a dead letter: its message id and the offset id of the original message."""
    return {letter.original_id, letter.message.properties.get(ORIGIN_MESSAGE_ID, letter.original_id)}


def _letter_count(admin: "pocketmq.Admin", group: str) -> int:
    """The number of dead letters; GroupNotFound for an unknown group."""
    letters = admin.dead_letters.count(group)
    if not letters:
        admin.groups.describe(group)
    return letters


def _show_plan(group: str, letters: "list[Letter]", topic: str | None) -> None:
    targets: dict[str, int] = {}
    for letter in letters:
        where = topic or letter.topic or "(unknown original topic)"
        targets[where] = targets.get(where, 0) + 1
    if not targets:
        show_text(f"Group {group} has no dead letters.")
    for where, many in sorted(targets.items()):
        show_text(f"{count(many, 'dead letter')} of group {group} to topic {where}.")


def _send(cluster: Cluster, letters: "list[Letter]", topic: str | None) -> "list[Resent]":
    outcomes: list[Resent] = []
    with cluster.long_admin() as admin, late_bar("sending", in_bytes=False) as bar:
        for at in range(0, len(letters), MAX_AT_ONCE):
            part = letters[at : at + MAX_AT_ONCE]
            outcomes.append(admin.dead_letters.resend(part, topic=topic))
            bar.update(at + len(part), len(letters))
    return outcomes


def _show_outcome(outcomes: "list[Resent]", *, as_json: bool) -> int:
    sent = [pair for outcome in outcomes for pair in outcome.sent]
    failed = [pair for outcome in outcomes for pair in outcome.failed]
    if as_json:
        none = BodyForm.NONE
        show_json(
            {**dead_letter_row(letter, none), "sent_as": result.message_id, "problem": ""} for letter, result in sent
        )
        show_json({**dead_letter_row(letter, none), "sent_as": None, "problem": why} for letter, why in failed)
    else:
        show_text(f"Sent {count(len(sent), 'message')}.")
        for letter, why in failed:
            show_text(f"Not sent: {letter.original_id}, {why}")
    return ExitCode.REFUSED if failed else ExitCode.OK

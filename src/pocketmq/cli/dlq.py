"""`pocketmq dlq`: dead letters, which groups have given up on: count them, read them, send them once more, drop them."""

from typing import TYPE_CHECKING, Any

import click

from pocketmq.cli.asking import Cluster, agreed, dry_run_option, on_a_cluster, yes_option
from pocketmq.cli.commands import ErrorTellingGroup, ExitCode
from pocketmq.cli.completion import complete_topic, group_argument
from pocketmq.cli.dlq_export import export
from pocketmq.cli.dlq_rows import letter_row
from pocketmq.cli.dump_screen import CELL_BODY_BYTES, body_cell
from pocketmq.cli.listing import limit_option
from pocketmq.cli.msg import body_option
from pocketmq.cli.rows_screen import Column, json_option, show_json, show_rows, tell
from pocketmq.cli.screen import count, late_bar
from pocketmq.cli.words import number
from pocketmq.clock import SystemClock
from pocketmq.errors import PocketMQError
from pocketmq.model.properties import ORIGIN_MESSAGE_ID
from pocketmq.store.message_fields import BodyForm

if TYPE_CHECKING:
    import pocketmq
    from pocketmq.client.administration.dead_letters import Letter, Resent

MAX_AT_ONCE = 50
"""Letters that are sent between two looks at the progress."""
_COUNTS = (Column("group"), Column("letters", told=number))
_LETTERS = (
    Column("died"),
    Column("topic"),
    Column("id"),
    Column("keys"),
    Column("attempts", told=number),
    Column("reason", told=lambda reason: reason or "not told"),
    Column("body", told=str),
)


@click.group("dlq", cls=ErrorTellingGroup)
def dlq_commands() -> None:
    """Dead letters: what consumer groups have given up on."""


@dlq_commands.command("ls")
@on_a_cluster
@json_option
def ls(cluster: Cluster, as_json: bool) -> None:
    """List the groups that have dead letters, and how many."""
    with cluster.admin() as admin:
        counts = admin.dead_letters.counts()
    rows = [{"group": group, "letters": letters} for group, letters in counts.items() if letters]
    show_rows(rows, _COUNTS, as_json=as_json, empty="There are no dead letters.")


@dlq_commands.command("show")
@on_a_cluster
@group_argument
@limit_option(100, "At most so many.")
@click.option("--newest", is_flag=True, help="Those that died last, instead of first.")
@body_option
@json_option
def show(cluster: Cluster, group: str, limit: int, newest: bool, form: str, as_json: bool) -> None:
    """Show the dead letters of a group, oldest first: where each was sent to, how often it was tried, why it died."""
    with cluster.admin() as admin:
        total = _letter_count(admin, group)
        letters = admin.dead_letters.read(group, limit=limit, newest=newest)
    rows = (_shown(letter, BodyForm(form), as_json=as_json) for letter in letters)
    show_rows(rows, _LETTERS, as_json=as_json, empty=f"Group {group} has no dead letters.")
    if len(letters) < total:
        click.echo(f"{len(letters):,} of {count(total, 'letter')}: --limit says how many are shown.", err=True)


@dlq_commands.command("replay")
@on_a_cluster
@group_argument
@click.option("--id", "ids", multiple=True, metavar="ID", help="Only the letter with this id; may be repeated.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the N oldest.  [default: all]")
@click.option("--newest", is_flag=True, help="With --limit: the newest instead.")
@click.option(
    "--topic",
    shell_complete=complete_topic,
    metavar="NAME",
    help="Send them there, instead of where each was sent at first.",
)
@dry_run_option
@yes_option
@json_option
def replay(
    cluster: Cluster,
    group: str,
    ids: tuple[str, ...],
    limit: int | None,
    newest: bool,
    topic: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Send dead letters once more. All groups that read the topic get them.

    The letters stay where they are, so a second replay sends them a second time.

    \b
    Exit code: 0  all were sent
               1  not confirmed, nothing was sent
               3  some could not be sent
    """
    letters = _chosen(cluster, group, ids, limit, newest=newest)
    if not as_json:
        _show_plan(group, letters, topic)
    if dry_run:
        if as_json:
            show_json({**letter_row(letter, BodyForm.NONE), "sent_as": None, "problem": ""} for letter in letters)
        return ExitCode.OK
    if not letters:
        return ExitCode.OK
    if not agreed(f"Send {count(len(letters), 'message')}?", yes=yes):
        return ExitCode.REPAIRABLE
    outcomes = _send(cluster, letters, topic)
    return _show_outcome(outcomes, as_json=as_json)


@dlq_commands.command("drop")
@on_a_cluster
@group_argument
@dry_run_option
@yes_option
@json_option
def drop(cluster: Cluster, group: str, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Delete all dead letters of a group. RocketMQ cannot delete single messages, so it is all or none."""
    with cluster.admin() as admin:
        letters = _letter_count(admin, group)
    if not as_json:
        tell(
            f"{count(letters, 'dead letter')} of group {group} go for ever; `pocketmq dlq export {group}` keeps a copy."
        )
    if not dry_run and letters:
        if not agreed("Delete them?", yes=yes):
            return ExitCode.REPAIRABLE
        with cluster.admin() as admin:
            admin.dead_letters.drop(group)
    is_done = bool(letters) and not dry_run
    if as_json:
        show_json([{"group": group, "letters": letters, "is_done": is_done}])
    else:
        tell("Deleted." if is_done else "Nothing was changed.")
    return ExitCode.OK


dlq_commands.add_command(export)


def _shown(letter: "Letter", form: BodyForm, *, as_json: bool) -> dict[str, Any]:
    """A row; of its body a table gets the beginning."""
    if as_json:
        return letter_row(letter, form)
    row = letter_row(letter, form, CELL_BODY_BYTES)
    return {**row, "body": body_cell(row)}


def _chosen(cluster: Cluster, group: str, ids: tuple[str, ...], limit: int | None, *, newest: bool) -> "list[Letter]":
    with cluster.admin() as admin:
        total = _letter_count(admin, group)
        wanted = limit if limit is not None and not ids else max(1, total)
        letters = admin.dead_letters.read(group, limit=wanted, newest=newest)
    if not ids:
        return letters
    chosen = [letter for letter in letters if _ids(letter) & set(ids)]
    known = {one for letter in chosen for one in _ids(letter)}
    if missing := [one for one in ids if one not in known]:
        raise PocketMQError(f"group {group} has no dead letter {missing[0]}; `pocketmq dlq show {group}` shows them")
    return chosen


def _ids(letter: "Letter") -> set[str]:
    """All that a letter is called by: its producer's id, and the broker's of the message that it was."""
    return {letter.original_id, letter.message.properties.get(ORIGIN_MESSAGE_ID, letter.original_id)}


def _letter_count(admin: "pocketmq.Admin", group: str) -> int:
    """How many there are; GroupNotFound when there is no such group, for a name may be mistyped."""
    letters = admin.dead_letters.count(group)
    if not letters:
        admin.groups.describe(group)
    return letters


def _show_plan(group: str, letters: "list[Letter]", topic: str | None) -> None:
    targets: dict[str, int] = {}
    for letter in letters:
        where = topic or letter.topic or "(it does not tell where it was sent)"
        targets[where] = targets.get(where, 0) + 1
    if not targets:
        tell(f"Group {group} has no dead letters.")
    for where, many in sorted(targets.items()):
        tell(f"{count(many, 'dead letter')} of group {group} to topic {where}.")


def _send(cluster: Cluster, letters: "list[Letter]", topic: str | None) -> "list[Resent]":
    outcomes: list[Resent] = []
    with cluster.long_admin() as admin, late_bar(SystemClock(), "sending", in_bytes=False) as bar:
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
        show_json({**letter_row(letter, none), "sent_as": result.message_id, "problem": ""} for letter, result in sent)
        show_json({**letter_row(letter, none), "sent_as": None, "problem": why} for letter, why in failed)
    else:
        tell(f"Sent {count(len(sent), 'message')}.")
        for letter, why in failed:
            tell(f"Not sent: {letter.original_id}, {why}")
    return ExitCode.REFUSED if failed else ExitCode.OK

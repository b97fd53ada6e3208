"""`pocketmq store`: look into the files of a store, and make the derived ones new."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from pocketmq.cli.commands import ErrorTellingGroup, ExitCode
from pocketmq.cli.dump_screen import FIELD_NAMES, choose_fields, show_messages
from pocketmq.cli.rebuild_screen import confirm, show_plan, show_rebuild
from pocketmq.cli.verify_screen import VerifyScreen
from pocketmq.clock import SystemClock
from pocketmq.files import DiskFiles
from pocketmq.model.delay import DelayLevels
from pocketmq.store.dump import Order, Selection, dump
from pocketmq.store.layout import KnownSizes, StoreLayout, find_layout
from pocketmq.store.message_fields import BodyForm
from pocketmq.store.rebuild import Rebuild
from pocketmq.store.rebuild_plan import plan_rebuild
from pocketmq.store.verify import Verification

F = TypeVar("F", bound=Callable[..., Any])

FILES = DiskFiles()


@click.group("store", cls=ErrorTellingGroup)
def store_commands() -> None:
    """Look into a store's files, or make the derived ones new.

    Works on the folder of PocketMQ and on that of Apache RocketMQ 4.9 and 5.x (its storePathRootDir).
    """


def on_a_store(command: F) -> F:
    """The folder, and what may have to be said about its files; the command gets a `StoreLayout` for both."""
    options = [
        click.argument("folder", metavar="DIR", type=click.Path(path_type=Path)),
        click.option(
            "--log-file-bytes",
            type=click.IntRange(1),
            metavar="N",
            help="Size of log files (mappedFileSizeCommitLog). Found out from the files when not given.",
        ),
        click.option(
            "--queue-file-entries",
            type=click.IntRange(1),
            metavar="N",
            help="Entries of a queue file (mappedFileSizeConsumeQueue ÷ 20). Found out from the files when not given.",
        ),
        click.option(
            "--index-slots",
            type=click.IntRange(1),
            metavar="N",
            help="Slots of an index file (maxHashSlotNum). Found out from the files where they tell.",
        ),
        click.option(
            "--index-entries",
            type=click.IntRange(2),
            metavar="N",
            help="Entries of an index file (maxIndexNum). Found out from the files where they tell.",
        ),
        click.option(
            "--delay-levels",
            metavar="TEXT",
            help="The broker's messageDelayLevel, such as '1s 5s 10s', if it is not RocketMQ's usual one.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _layout(folder: Path, sizes: dict[str, Any]) -> StoreLayout:
    levels = sizes.pop("delay_levels")
    return find_layout(FILES, folder, KnownSizes(delay_levels=DelayLevels(levels) if levels else None, **sizes))


@store_commands.command()
@on_a_store
@click.option("--no-index", is_flag=True, help="Leave the key index out.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line: each finding, then a summary.")
def verify(folder: Path, no_index: bool, as_json: bool, **sizes: Any) -> int:
    """Say what is right and what is not, with exact offsets. Changes nothing.

    Reads the whole log, and compares queues, index, checkpoint and tables with it. A store may be in use meanwhile.

    \b
    Exit code: 0  sound
               1  repairable: derived files differ from the log, `store rebuild` makes them new
               2  damage in the log or in tables
               3  cannot be read
    """
    verification = Verification(FILES, _layout(folder, sizes), with_index=not no_index)
    return VerifyScreen(SystemClock(), folder, as_json=as_json).show(verification)


@store_commands.command("dump")
@on_a_store
@click.option("--topic", metavar="NAME", help="Only this topic, in the order of its queues.")
@click.option("--queue", "queue_id", type=click.IntRange(0), metavar="N", help="Only this queue.")
@click.option(
    "--order",
    type=click.Choice([order.value for order in Order]),
    help="By the log, or queue by queue. Without it: queue when --topic is given, else log.",
)
@click.option("--from-offset", type=click.IntRange(0), default=0, metavar="N", help="First offset, of log or queue.")
@click.option("--to-offset", type=click.IntRange(0), metavar="N", help="End before this offset, of log or queue.")
@click.option("--limit", type=click.IntRange(0), metavar="N", help="At most so many messages.")
@click.option("--key", "--keys", "key", metavar="KEY", help="Only messages with this key, or this unique key.")
@click.option("--tag", metavar="TAG", help="Only messages with this tag.")
@click.option(
    "--body",
    type=click.Choice([form.value for form in BodyForm]),
    default=BodyForm.TEXT.value,
    show_default=True,
    help="How bodies are shown; compressed ones are decompressed.",
)
@click.option("--fields", metavar="NAME,…", help=f"What to show of: {', '.join(FIELD_NAMES)}.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def dump_command(
    folder: Path,
    topic: str | None,
    queue_id: int | None,
    order: str | None,
    from_offset: int,
    to_offset: int | None,
    limit: int | None,
    key: str | None,
    tag: str | None,
    body: str,
    fields: str | None,
    as_json: bool,
    **sizes: Any,
) -> int:
    """Print messages, as a table or as JSON lines. Changes nothing.

    In log order everything is there that the log holds: also half messages of transactions, and messages of topics that
    were deleted. What cannot be read is told on the error stream, and the next message follows.
    """
    selection = Selection(topic=topic, queue_id=queue_id, begin=from_offset, end=to_offset, key=key, tag=tag)
    chosen = choose_fields(fields, as_json=as_json)
    in_order = Order(order) if order else Order.LOG if topic is None else Order.QUEUE
    messages = dump(FILES, _layout(folder, sizes), in_order, selection)
    return show_messages(messages, chosen, BodyForm(body), limit=limit, as_json=as_json)


@store_commands.command()
@on_a_store
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Say which files would be replaced, and stop.")
def rebuild(folder: Path, yes: bool, dry_run: bool, **sizes: Any) -> int:
    """Make consume queues and key index new, from the log alone.

    Log and tables are only read. The new files are made beside the old ones and then take their places, so it may be
    interrupted at any time and run again. Refused while a broker uses the store.

    \b
    Exit code: 0  done
               1  not confirmed, nothing was changed
               2  done, but parts of the log could not be read
               3  cannot be done
    """
    layout = _layout(folder, sizes)
    show_plan(layout, plan_rebuild(FILES, layout), dry_run=dry_run)
    if dry_run:
        return ExitCode.OK
    if not yes and not confirm():
        return ExitCode.REPAIRABLE
    return show_rebuild(Rebuild(FILES, SystemClock(), layout), SystemClock())

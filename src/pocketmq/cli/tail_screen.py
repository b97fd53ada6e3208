"""What `msg tail` shows: a line for each message, so that it may go on for ever."""

import sys
from collections.abc import Iterable

import msgspec
from rich.text import Text

from pocketmq.cli.dump_screen import CELL_BODY_BYTES, body_cell, cell
from pocketmq.cli.screen import screen
from pocketmq.model.message import StoredMessage
from pocketmq.store.message_fields import BodyForm, fields_of, local_time


def show_tail(messages: Iterable[StoredMessage], left: int | None, *, as_json: bool) -> int | None:
    """Show them, `left` at most; how many may still be shown after that, None for without end."""
    console = screen()
    for message in messages:
        if left == 0:
            break
        if as_json:
            sys.stdout.write(msgspec.json.encode(fields_of(message, BodyForm.TEXT)).decode() + "\n")
        else:
            console.print(_line(message), soft_wrap=True)
        left = None if left is None else left - 1
    sys.stdout.flush()
    return left


def _line(message: StoredMessage) -> Text:
    line = Text(f"{local_time(message.store_ms)}  {message.queue_id}@{message.queue_offset}", style="dim")
    labels = " ".join(filter(None, (message.tags, *message.keys)))
    if labels:
        line.append(f"  [{cell(labels)}]", style="bold")
    body = body_cell(fields_of(message, BodyForm.TEXT, CELL_BODY_BYTES))
    return line.append(f"  {body}", style="not dim")

"""A dead letter as a row: what `dlq show`, `replay` and `export` tell of it."""

from typing import TYPE_CHECKING, Any

from pocketmq.cli.words import clock_time
from pocketmq.store.message_fields import BodyForm, fields_of

if TYPE_CHECKING:
    from pocketmq.client.administration.dead_letters import Letter


def letter_row(letter: "Letter", form: BodyForm, most_bytes: int | None = None) -> dict[str, Any]:
    """With `most_bytes`, that much of the body is in it, for a table."""
    fields = fields_of(letter.message, form, most_bytes)
    return {
        "group": letter.group,
        "topic": letter.topic,
        "id": letter.original_id,
        "reason": letter.reason,
        "attempts": letter.attempts,
        "died": clock_time(letter.died_ms),
        "died_ms": letter.died_ms,
        "broker": letter.queue.broker_name,
        "queue": letter.queue.queue_id,
        "queue_offset": letter.message.queue_offset,
        "tags": fields["tags"],
        "keys": fields["keys"],
        "properties": fields["properties"],
        **{name: fields[name] for name in ("body", "body_error", "body_cut") if name in fields},
    }

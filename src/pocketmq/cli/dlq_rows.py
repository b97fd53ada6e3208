"""A dead letter as a row: what `dlq show`, `replay` and `export` tell of it."""

from typing import TYPE_CHECKING, Any

from pocketmq.cli.words import clock_time
from pocketmq.store.message_fields import BodyForm, fields_of

if TYPE_CHECKING:
    from pocketmq.client.administration.dead_letters import Letter


def letter_row(letter: "Letter", form: BodyForm) -> dict[str, Any]:
    fields = fields_of(letter.message, form)
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
        **{name: fields[name] for name in ("body", "body_error") if name in fields},
    }

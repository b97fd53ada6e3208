"""Whether owners do their work: how long ago each asked for more, and for how long each has been busy with the same message."""

from collections.abc import Iterator

from pocketmq.client.administration.reading import first_at
from pocketmq.doctor.members import NO_GROUP
from pocketmq.doctor.report import Finding, broken, fine, not_looked_at, unknown
from pocketmq.doctor.visit import Visit
from pocketmq.doctor.words import count, span
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.bodies.running_info import ProcessQueueInfo

Owned = tuple[str, MessageQueue, ProcessQueueInfo]


async def look_at_pulls(visit: Visit) -> Finding:
    """Whether each owner asks for messages. One that is busy with those it has may be late: that is the next step's."""
    if visit.group is None:
        return not_looked_at(NO_GROUP)
    ages: list[int] = []
    for client_id, queue, state in _owned(visit):
        if not state.last_pull_timestamp:
            continue
        age_ms = max(0, visit.members_ms - state.last_pull_timestamp)
        ages.append(age_ms)
        if age_ms > visit.settings.max_pull_age_ms and not _held(state):
            return broken(
                f"member {client_id} has not asked for messages of {visit.reach.shown_queue(queue)} for {span(age_ms)}",
                "See whether it is paused, and what its log says of this queue; restarting it lets others read the queue",
            )
    if not ages:
        return unknown("no member says when it asked last")
    return fine(f"the longest ago is {span(max(ages))}")


async def look_at_handlers(visit: Visit) -> Finding:
    """Whether handlers come to an end."""
    if visit.group is None:
        return not_looked_at(NO_GROUP)
    busy = [each for each in _owned(visit) if _held(each[2])]
    for client_id, queue, state in busy:
        age_ms = await _handled_for_ms(visit, queue, state)
        if age_ms is not None and age_ms > visit.settings.max_handler_age_ms:
            waiting = count(_held(state), "message")
            return broken(
                f"member {client_id} has been at {visit.reach.shown_queue(queue)} offset {_first(state)} for {span(age_ms)}, and holds {waiting}",
                "See what its handler waits for (`Admin.groups.running_info(…, stacks=True)` shows its threads); give calls in "
                "it a time limit",
            )
    notes = _failures(visit) + await _letters(visit)
    held = sum(_held(state) for _, _, state in busy)
    return fine(
        f"{count(held, 'message')} being handled or waiting for it" if held else "nothing waits for a handler", *notes
    )


def _owned(visit: Visit) -> Iterator[Owned]:
    for client_id, info in sorted(visit.member_infos.items()):
        for queue, state in sorted(info.mq_table.items(), key=lambda pair: pair[0]):
            if not state.dropped:
                yield client_id, queue, state


def _held(state: ProcessQueueInfo) -> int:
    return state.cached_msg_count + state.transaction_msg_count


def _first(state: ProcessQueueInfo) -> int:
    """The offset of the oldest message that is not done."""
    offsets = [state.cached_msg_min_offset] if state.cached_msg_count else []
    return min(offsets + ([state.transaction_msg_min_offset] if state.transaction_msg_count else []))


async def _handled_for_ms(visit: Visit, queue: MessageQueue, state: ProcessQueueInfo) -> int | None:
    """Since the last one was done, and no longer than the message has been stored: before, there was nothing to handle."""
    since_ms = visit.members_ms - state.last_consume_timestamp
    if since_ms <= visit.settings.max_handler_age_ms:
        return max(0, since_ms)
    message = await first_at(visit.reach, queue, _first(state))
    return None if message is None else min(since_ms, visit.members_ms - message.store_ms)


def _failures(visit: Visit) -> list[str]:
    failed: dict[str, int] = {}
    for info in visit.member_infos.values():
        for topic, status in info.status_table.items():
            failed[topic] = failed.get(topic, 0) + status.consume_failed_msgs
    return [
        f"handlers failed on {count(many, 'message')} of {visit.reach.shown(topic)} in the last hour"
        for topic, many in sorted(failed.items())
        if many
    ]


async def _letters(visit: Visit) -> list[str]:
    assert visit.group is not None, "it is about one"
    letters = await visit.dead_letters.count(visit.group)
    if not letters:
        return []
    return [f"{count(letters, 'dead letter')} of {visit.group}: `pocketmq dlq show {visit.group}` says why"]

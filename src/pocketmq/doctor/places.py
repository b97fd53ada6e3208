"""Where a group is: its offsets beside where each queue begins and ends, and how long messages wait for it before they go."""

from pocketmq.client.administration.lag import GroupLag, QueueLag
from pocketmq.doctor.members import NO_GROUP
from pocketmq.doctor.report import Finding, broken, fine, not_looked_at, unknown
from pocketmq.doctor.visit import Visit
from pocketmq.doctor.words import count, span
from pocketmq.protocol.bodies.heartbeat import MessageModel

RETENTION_KEY = "fileReservedTime"
HOUR_MS = 3_600_000


async def look_at_offsets(visit: Visit) -> Finding:
    """Whether the group is inside of each queue. What is unknown is not called 0."""
    if visit.group is None:
        return not_looked_at(NO_GROUP)
    if visit.group_state is None:
        return not_looked_at("no broker knows the group")
    if visit.group_state.message_model is MessageModel.BROADCASTING:
        return unknown("each member keeps its own offsets, as the group broadcasts")
    visit.lag = lag = await visit.offsets.lag(visit.group, visit.topic)
    for each in lag.queues:
        if each.committed is not None and each.max_offset is not None and each.committed > each.max_offset:
            return broken(
                f"group {visit.group} is at offset {each.committed:,} of {each.queue}, which ends at {each.max_offset:,}: "
                "the topic was made anew, or the broker lost messages",
                f"`pocketmq group reset {visit.group} {each.queue.topic} --to earliest` (or latest) lets it go on",
            )
    notes = [note for each in lag.queues if (note := _unknown_note(each))]
    if lag.messages is None:
        return unknown("how far it is behind is not known in every queue", *notes)
    return fine(f"{_behind(lag)} behind", *notes)


async def look_at_retention(visit: Visit) -> Finding:
    """Whether messages are kept for as long as the group needs."""
    kept = {place.name: hours * HOUR_MS for place in visit.masters if (hours := visit.whole(place, RETENTION_KEY))}
    if not kept:
        return unknown(f"no broker tells how long it keeps messages ({RETENTION_KEY})")
    for each in () if visit.lag is None else visit.lag.queues:
        kept_ms = kept.get(each.queue.broker_name)
        if each.lost:
            return broken(
                f"{count(each.lost, 'message')} of {each.queue} were deleted before {visit.group} had read them",
                f"They are gone. Let the group read faster, or keep messages for longer ({RETENTION_KEY}, more disk); "
                f"`pocketmq group reset {visit.group} {each.queue.topic} --to earliest` ends the mark",
            )
        if kept_ms and each.time_ms and each.time_ms * 100 > kept_ms * visit.settings.retention_used_percent:
            return broken(
                f"the oldest message of {each.queue} that {visit.group} has not read is {span(each.time_ms)} old, and is kept "
                f"for {span(kept_ms)}",
                f"Let the group read faster, or keep messages for longer ({RETENTION_KEY}), before they go",
            )
    texts = [f"{name} keeps messages for {span(ms)}" for name, ms in kept.items()]
    return fine("; ".join(texts), *_oldest(visit))


def _unknown_note(lag: QueueLag) -> str:
    if lag.committed is None and lag.max_offset is not None:
        return f"the group has no offset in {lag.queue} yet: who reads it first begins where its own settings say"
    return f"{lag.queue}: {lag.problem}" if lag.problem else ""


def _behind(lag: GroupLag) -> str:
    messages = count(lag.messages or 0, "message")
    return messages if not lag.time_ms else f"{messages}, {span(lag.time_ms)}"


def _oldest(visit: Visit) -> list[str]:
    """Brokers that had to delete what is younger than a day: their disk is too small for what is sent."""
    notes = []
    for place, table in visit.runtime.items():
        text = table.get("earliestMessageTimeStamp", "")
        if not text.isdigit() or table.get("commitLogMinOffset", "0") == "0":
            continue
        age_ms = max(0, visit.now_ms - int(text))
        if age_ms < 24 * HOUR_MS:
            notes.append(
                f"the oldest message at {place.name} is only {span(age_ms)} old: its disk is small for what is sent"
            )
    return notes

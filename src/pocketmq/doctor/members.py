"""The group: who is in it, whether all want the same, and who owns which queue.

What members want and own they are asked themselves, through a broker: brokers remember one subscription for the whole group, the
last that they heard of.

Whether owners do their work: how long ago each asked for more, and for how long each has been busy with the same message.

Where a group is: its offsets beside where each queue begins and ends, and how long messages wait for it before they go.
"""

from collections.abc import Iterator, Mapping

from pocketmq.client.admin.dead_letters import DeadLetterAdmin
from pocketmq.client.admin.groups import GroupAdmin
from pocketmq.client.admin.lag import GroupLag, QueueLag
from pocketmq.client.admin.offsets import OffsetAdmin
from pocketmq.client.admin.reach import BrokerPlace, first_at
from pocketmq.doctor.report import Finding, broken, fine, not_looked_at, unknown
from pocketmq.doctor.rights import or_nearest
from pocketmq.doctor.visit import Visit
from pocketmq.errors import GroupNotFound
from pocketmq.model.human import count, duration
from pocketmq.model.names import group_of
from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import ExpressionType, Subscription
from pocketmq.protocol.bodies.clients import MessageModel
from pocketmq.protocol.bodies.running_info import ConsumerRunningInfo, ProcessQueueInfo

PROPERTY_FILTER_KEY = "enablePropertyFilter"
NO_GROUP = "no group was named"

Wants = frozenset[tuple[str, str]]
"""Topics with the filter on each."""


async def look_at_group(visit: Visit) -> Finding:
    """Whether brokers know it and let it read, and somebody is in it."""
    if visit.group is None:
        return not_looked_at(NO_GROUP)
    group = visit.group
    try:
        visit.group_state = state = await GroupAdmin(visit.reach).describe(group)
    except GroupNotFound:
        advice = "start a consumer of this group: see that it is given these name servers and the same namespace"
        return broken(
            f"no broker knows the group {group}", or_nearest(group, await GroupAdmin(visit.reach).names(), advice)
        )
    for broker, config in state.configs.items():
        if not config.consume_enable:
            return broken(
                f"group {group} may not read at {broker} (consumeEnable=false)",
                "Let it again: `Admin.groups.alter(group, may_consume=True)`, or mqadmin updateSubGroup -s true",
            )
    if not state.members:
        return broken(
            f"nobody is in group {group} now",
            "Start a consumer; if one runs, see its log, its name servers and its group. A query that only writes down how "
            "far it is, as Spark's, is never in it",
        )
    return fine(f"{count(len(state.members), 'member')} of {group}: {_named(visit)}", *_not_everywhere(visit))


async def look_at_subscription(visit: Visit) -> Finding:
    """Whether all members want the same of the same topics: else each loses messages that go to the others."""
    if visit.group is None:
        return not_looked_at(NO_GROUP)
    await _ask_members(visit)
    wants = {client_id: _wants(visit, info) for client_id, info in visit.member_infos.items()}
    notes = [f"member {client_id} does not say what it wants: {why}" for client_id, why in visit.silent.items()]
    if not wants:
        return unknown("no member says what it wants", *notes)
    if len(set(wants.values())) > 1:
        return broken(
            f"members of {visit.group} want different things, so each loses messages: {_conflict(wants)}",
            "Give all members of a group the same topics and filters; who wants something else needs a group of its own. "
            "During a rolling update it ends with the update",
            *notes,
        )
    [same] = set(wants.values())
    if visit.topic is not None and visit.topic not in {topic for topic, _ in same}:
        return broken(
            f"no member of {visit.group} subscribes to {visit.topic}, but to: {_shown(same) or 'nothing'}",
            "Let the consumer subscribe to the topic, or look at another group",
        )
    if unfiltered := _cannot_filter(visit):
        return broken(
            f"{visit.group} filters by SQL92, and broker {unfiltered} does not ({PROPERTY_FILTER_KEY}=false)",
            f"`pocketmq cluster config {unfiltered} --set {PROPERTY_FILTER_KEY}=true` lets it",
        )
    return fine(f"all want {_shown(same)}", *notes)


async def look_at_owners(visit: Visit) -> Finding:
    """Whether every queue has one owner, who answers."""
    if visit.group is None:
        return not_looked_at(NO_GROUP)
    for client_id, why in visit.silent.items():
        return broken(
            f"member {client_id} is connected and does not answer, so nobody knows of its queues ({why})",
            "See whether its process hangs or its machine is gone; when its connection ends, others take its queues",
        )
    owners = _owners(visit)
    queues = [queue for topic in visit.topics for queue in await _readable(visit, topic)]
    is_broadcast = visit.group_state is not None and visit.group_state.message_model is MessageModel.BROADCASTING
    for queue in queues:
        clients = owners.get(queue, [])
        if not clients:
            return broken(
                f"nobody reads {queue}",
                "Run this again in half a minute, as members may be sharing queues out anew; if it stays, see that each of "
                "them reaches every broker, and that they share queues out by the same rule",
            )
        if len(clients) > 1 and not is_broadcast:
            return broken(
                f"{queue} is read by {' and '.join(clients)}",
                "Run this again in half a minute, as members may be sharing queues out anew; if it stays, they do not see "
                "each other: look at their connections to the brokers",
            )
    idle = [
        member.client_id for member in visit.members if not any(member.client_id in each for each in owners.values())
    ]
    notes = [f"member {client_id} has nothing to read: there are not more queues" for client_id in idle]
    return fine(f"{count(len(queues), 'queue')}, each read by {'all' if is_broadcast else 'one'}", *notes)


async def _ask_members(visit: Visit) -> None:
    """Once: later steps use the same answers."""
    assert visit.group is not None, "steps about members are for a group"
    group = visit.group
    clients = [member.client_id for member in visit.members]
    visit.members_ms = visit.now_ms  # before they answer: waiting for a silent one must not make the others look old
    found, failed = await visit.reach.gather_what_goes(
        clients, lambda client_id: GroupAdmin(visit.reach).running_info(group, client_id)
    )
    visit.member_infos = dict(found)
    visit.silent = {client_id: type(error).__name__ for client_id, error in failed.items()}


def _wants(visit: Visit, info: ConsumerRunningInfo) -> Wants:
    return frozenset(
        (visit.reach.shown(each.topic), _filter(each)) for each in info.subscription_set if not group_of(each.topic)
    )


def _filter(subscription: Subscription) -> str:
    """Texts that mean the same are the same."""
    if subscription.takes_all:
        return "*"
    return " || ".join(sorted(subscription.tags_set)) if subscription.is_tag else subscription.sub_string


def _shown(wants: Wants) -> str:
    return ", ".join(f"{topic} ({text})" for topic, text in sorted(wants))


def _conflict(wants: Mapping[str, Wants]) -> str:
    """Each way to want, with one or all who want so."""
    ways: dict[Wants, list[str]] = {}
    for client_id, each in sorted(wants.items()):
        ways.setdefault(each, []).append(client_id)
    return "; ".join(f"{', '.join(clients)}: {_shown(each) or 'nothing'}" for each, clients in ways.items())


def _cannot_filter(visit: Visit) -> str | None:
    """A broker that does not filter by what members want it to."""
    wanted = [each for info in visit.member_infos.values() for each in info.subscription_set]
    if not any(each.expression_type == ExpressionType.SQL92 for each in wanted):
        return None
    return next((place.name for place in visit.masters if visit.setting(place, PROPERTY_FILTER_KEY) == "false"), None)


def _owners(visit: Visit) -> dict[MessageQueue, list[str]]:
    found: dict[MessageQueue, list[str]] = {}
    for client_id, info in visit.member_infos.items():
        held = [queue for queue, state in info.mq_table.items() if not state.dropped]
        held += [queue for queue, state in info.mq_pop_table.items() if not state.dropped]
        for queue in held:
            found.setdefault(visit.reach.shown_queue(queue), []).append(client_id)
    return found


async def _readable(visit: Visit, topic: str) -> list[MessageQueue]:
    route = await visit.reach.route(visit.reach.topic(topic))
    return [visit.reach.shown_queue(queue) for queue in route.readable]


def _named(visit: Visit) -> str:
    names = [member.client_id for member in visit.members]
    return ", ".join(names[:3]) + (" …" if len(names) > 3 else "")


def _not_everywhere(visit: Visit) -> list[str]:
    """Members that brokers do not all know: they cannot read there."""
    places: list[BrokerPlace] = visit.masters
    return [
        f"member {member.client_id} is not connected to broker {place.name}"
        for member in visit.members
        for place in places
        if place.name not in member.brokers
    ]


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
                f"member {client_id} has not asked for messages of {visit.reach.shown_queue(queue)} for {duration(age_ms)}",
                "See whether it is paused, and what its log says of this queue; restarting it lets others read the queue",
            )
    if not ages:
        return unknown("no member says when it asked last")
    return fine(f"the longest ago is {duration(max(ages))}")


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
                f"member {client_id} has been at {visit.reach.shown_queue(queue)} offset {_first(state)} for {duration(age_ms)}, and holds {waiting}",
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
    letters = await DeadLetterAdmin(visit.reach).count(visit.group)
    if not letters:
        return []
    return [f"{count(letters, 'dead letter')} of {visit.group}: `pocketmq dlq show {visit.group}` says why"]


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
    visit.lag = lag = await OffsetAdmin(visit.reach).lag(visit.group, visit.topic)
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
                f"the oldest message of {each.queue} that {visit.group} has not read is {duration(each.time_ms)} old, and is kept "
                f"for {duration(kept_ms)}",
                f"Let the group read faster, or keep messages for longer ({RETENTION_KEY}), before they go",
            )
    texts = [f"{name} keeps messages for {duration(ms)}" for name, ms in kept.items()]
    return fine("; ".join(texts), *_oldest(visit))


def _unknown_note(lag: QueueLag) -> str:
    if lag.committed is None and lag.max_offset is not None:
        return f"the group has no offset in {lag.queue} yet: who reads it first begins where its own settings say"
    return f"{lag.queue}: {lag.problem}" if lag.problem else ""


def _behind(lag: GroupLag) -> str:
    messages = count(lag.messages or 0, "message")
    return messages if not lag.time_ms else f"{messages}, {duration(lag.time_ms)}"


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
                f"the oldest message at {place.name} is only {duration(age_ms)} old: its disk is small for what is sent"
            )
    return notes

"""Checks of the group: members, subscriptions, queue owners, pulls, handlers, offsets and retention.

Members report their own subscriptions and queues, through a broker: a broker keeps one subscription for the whole group, that of
the last heartbeat.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pocketmq.client.admin.targets import first_at
from pocketmq.doctor.context import DoctorContext
from pocketmq.doctor.report import Finding, broken, ok, skipped, unknown, with_suggestion
from pocketmq.errors import GroupNotFound
from pocketmq.model import ExpressionType, MessageQueue, Subscription, group_of
from pocketmq.model.human import count, duration
from pocketmq.protocol.bodies.clients import LEASE_KEYS, ConsumerRunningInfo, MessageModel, ProcessQueueInfo

PROPERTY_FILTER_KEY = "enablePropertyFilter"
NO_GROUP = "no group requested"
RETENTION_KEY = "fileReservedTime"
HOUR_MS = 3_600_000

Filters = frozenset[tuple[str, str]]
"""Topics with their filters."""
Owned = tuple[str, MessageQueue, ProcessQueueInfo]
"""A queue with the client id of its owner."""


async def check_group(context: DoctorContext) -> Finding:
    """Whether brokers know the group and allow it to consume, and whether it has members."""
    if context.group is None:
        return skipped(NO_GROUP)
    group = context.group
    try:
        context.group_state = state = await context.groups.describe(group)
    except GroupNotFound:
        advice = "start a consumer of this group, with these name servers and the same namespace"
        return broken(
            f"group {group} does not exist on any broker", with_suggestion(group, await context.groups.names(), advice)
        )
    for broker, config in state.configs.items():
        if not config.consume_enable:
            return broken(
                f"broker {broker} does not allow group {group} to consume (consumeEnable=false)",
                "Allow it with `Admin.groups.alter(group, may_consume=True)` or mqadmin updateSubGroup -s true",
            )
    if not state.members:
        return broken(
            f"group {group} has no members",
            "Start a consumer; if one is running, check its log, name servers and group name. "
            "A Spark query commits offsets but is never a member",
        )
    return ok(f"{count(len(state.members), 'member')} of {group}: {_named(context)}", *_not_everywhere(context))


async def check_subscription(context: DoctorContext) -> Finding:
    """Whether all members have the same subscription. If they differ, each member loses messages of the others' topics."""
    if context.group is None:
        return skipped(NO_GROUP)
    await _load_members(context)
    filters = {client_id: _filters(context, info) for client_id, info in context.member_infos.items()}
    hints = [f"member {client_id} did not report its subscription: {why}" for client_id, why in context.silent.items()]
    if not filters:
        return unknown("no member reported its subscription", *hints)
    if len(set(filters.values())) > 1:
        return broken(
            f"members of {context.group} have different subscriptions, so each loses messages: {_conflict(filters)}",
            "Use the same topics and filters in all members of a group; use another group for another subscription. "
            "During a rolling update, this ends with the update",
            *hints,
        )
    [same] = set(filters.values())
    if context.topic is not None and context.topic not in {topic for topic, _ in same}:
        return broken(
            f"group {context.group} does not subscribe to {context.topic}; it subscribes to: {_shown(same) or 'nothing'}",
            "Subscribe the consumer to the topic, or examine another group",
        )
    if unfiltered := _cannot_filter(context):
        return broken(
            f"group {context.group} filters by SQL92, which broker {unfiltered} does not allow ({PROPERTY_FILTER_KEY}=false)",
            f"`pocketmq cluster config {unfiltered} --set {PROPERTY_FILTER_KEY}=true` allows it",
        )
    return ok(f"all members: {_shown(same)}", *hints)


async def check_owners(context: DoctorContext) -> Finding:
    """Whether every queue has one owner, and the owner answers."""
    if context.group is None:
        return skipped(NO_GROUP)
    for client_id, why in context.silent.items():
        return broken(
            f"member {client_id} is connected but does not answer, so its queues are unknown ({why})",
            "Check whether its process hangs or its machine is down. When its connection ends, a rebalance assigns its queues to others",
        )
    owners, poppers = _owners(context), _poppers(context)
    queues = [queue for topic in context.topics for queue in await _readable(context, topic)]
    is_broadcast = context.group_state is not None and context.group_state.message_model is MessageModel.BROADCASTING
    for queue in queues:
        clients, popped_by = owners.get(queue, []), _poppers_of(poppers, queue)
        if clients and popped_by:
            return broken(
                f"{queue} is pulled by {', '.join(clients)} and popped by {', '.join(popped_by)}, so messages are delivered twice",
                "Use the same mode in all members of a group. While an administrator switches a group, this ends within half a minute",
            )
        if not clients and not popped_by:
            return broken(
                f"{queue} has no owner",
                "A rebalance may be running: run the doctor again in half a minute. If the queue still has no owner, check "
                "that each member is connected to every broker, and that all use the same allocation strategy",
            )
        if len(clients) > 1 and not is_broadcast:
            return broken(
                f"{queue} has several owners: {', '.join(clients)}",
                "A rebalance may be running: run the doctor again in half a minute. If the queue still has several owners, "
                "check that each member is connected to every broker",
            )
    working = {client_id for each in (*owners.values(), *poppers.values()) for client_id in each}
    idle = [member.client_id for member in context.members if member.client_id not in working]
    hints = [f"member {client_id} owns no queue: there are more members than queues" for client_id in idle]
    if poppers and not owners:
        return ok(f"{count(len(queues), 'queue')}, popped by {count(len(working), 'member')}", *hints)
    return ok(f"{count(len(queues), 'queue')}, each owned by {'all members' if is_broadcast else 'one member'}", *hints)


async def _load_members(context: DoctorContext) -> None:
    assert context.group is not None, "only steps of a group load members"
    group = context.group
    clients = [member.client_id for member in context.members]
    context.members_ms = (
        context.now_ms
    )  # before they answer: waiting for one that does not answer must not age the others
    found, failed = await context.targets.gather_with_errors(
        clients, lambda client_id: context.groups.running_info(group, client_id)
    )
    context.member_infos = dict(found)
    context.silent = {client_id: type(error).__name__ for client_id, error in failed.items()}


def _filters(context: DoctorContext, info: ConsumerRunningInfo) -> Filters:
    return frozenset(
        (context.targets.shown(each.topic), _filter(each)) for each in info.subscription_set if not group_of(each.topic)
    )


def _filter(subscription: Subscription) -> str:
    """One text for all filters with the same meaning."""
    if subscription.matches_all:
        return "*"
    return " || ".join(sorted(subscription.tags_set)) if subscription.is_tag else subscription.sub_string


def _shown(filters: Filters) -> str:
    return ", ".join(f"{topic} ({text})" for topic, text in sorted(filters))


def _conflict(filters: Mapping[str, Filters]) -> str:
    """Each subscription with the members that have it."""
    clients_of: dict[Filters, list[str]] = {}
    for client_id, each in sorted(filters.items()):
        clients_of.setdefault(each, []).append(client_id)
    return "; ".join(f"{', '.join(clients)}: {_shown(each) or 'nothing'}" for each, clients in clients_of.items())


def _cannot_filter(context: DoctorContext) -> str | None:
    """The first broker that does not support the filters of the members."""
    subscriptions = [each for info in context.member_infos.values() for each in info.subscription_set]
    if not any(each.expression_type == ExpressionType.SQL92 for each in subscriptions):
        return None
    return next(
        (broker.name for broker in context.masters if context.setting(broker, PROPERTY_FILTER_KEY) == "false"), None
    )


def _owners(context: DoctorContext) -> dict[MessageQueue, list[str]]:
    found: dict[MessageQueue, list[str]] = {}
    for client_id, info in context.member_infos.items():
        for queue in (queue for queue, state in info.mq_table.items() if not state.dropped):
            found.setdefault(context.targets.shown_queue(queue), []).append(client_id)
    return {queue: clients for queue, clients in found.items() if not group_of(queue.topic)}


def _poppers(context: DoctorContext) -> dict[MessageQueue, list[str]]:
    """The members that pop a queue. Queue -1 means all queues of a topic on a broker."""
    found: dict[MessageQueue, list[str]] = {}
    for client_id, info in context.member_infos.items():
        for queue in (queue for queue, state in info.mq_pop_table.items() if not state.dropped):
            found.setdefault(context.targets.shown_queue(queue), []).append(client_id)
    return found


def _poppers_of(poppers: Mapping[MessageQueue, list[str]], queue: MessageQueue) -> list[str]:
    whole = MessageQueue(queue.topic, queue.broker_name, -1)
    return [*poppers.get(queue, ()), *poppers.get(whole, ())]


async def _readable(context: DoctorContext, topic: str) -> list[MessageQueue]:
    route = await context.targets.route(context.targets.topic(topic))
    return [context.targets.shown_queue(queue) for queue in route.readable]


def _named(context: DoctorContext) -> str:
    names = [member.client_id for member in context.members]
    return ", ".join(names[:3]) + (" …" if len(names) > 3 else "")


def _not_everywhere(context: DoctorContext) -> list[str]:
    """Members that are not connected to every broker: they cannot read from the others."""
    return [
        f"member {member.client_id} is not connected to broker {broker.name}"
        for member in context.members
        for broker in context.masters
        if broker.name not in member.brokers
    ]


async def check_pulls(context: DoctorContext) -> Finding:
    """Whether each owner pulls. An owner that still processes messages may pull late: the next step checks it."""
    if context.group is None:
        return skipped(NO_GROUP)
    ages: list[int] = []
    for client_id, state in _last_requests(context):
        age_ms = max(0, context.members_ms - state.last_ms)
        ages.append(age_ms)
        if age_ms > context.settings.max_pull_age_ms and not state.messages:
            return broken(
                f"member {client_id} has not {state.verb} {context.targets.shown_queue(state.queue)} for {duration(age_ms)}",
                "Check whether it is paused, and what it logs about this queue; a restart assigns the queue to other members"
                if state.verb == "pulled from"
                else "Check whether it is paused, whether a SimpleConsumer calls `receive`, and what it logs about this topic",
            )
    if not ages:
        return unknown("no member reported the time of its last pull")
    return ok(f"every owner pulled within the last {duration(max(ages))}")


class _LastRequest(NamedTuple):
    """The last pull or pop of a queue, and the messages that are in the member."""

    verb: str
    queue: MessageQueue
    last_ms: int
    messages: int


def _last_requests(context: DoctorContext) -> Iterator[tuple[str, _LastRequest]]:
    for client_id, queue, state in _owned(context):
        if state.last_pull_timestamp:
            yield client_id, _LastRequest("pulled from", queue, state.last_pull_timestamp, _cached(state))
    for client_id, info in sorted(context.member_infos.items()):
        for queue, popped in info.mq_pop_table.items():
            if popped.last_pop_timestamp and not popped.dropped:
                yield client_id, _LastRequest("popped", queue, popped.last_pop_timestamp, popped.wait_ack_count)


async def check_handlers(context: DoctorContext) -> Finding:
    """Whether message handlers finish."""
    if context.group is None:
        return skipped(NO_GROUP)
    busy = [each for each in _owned(context) if _cached(each[2])]
    for client_id, queue, state in busy:
        age_ms = await _handled_for_ms(context, queue, state)
        if age_ms is not None and age_ms > context.settings.max_handler_age_ms:
            waiting = count(_cached(state), "message")
            return broken(
                f"member {client_id} has processed {context.targets.shown_queue(queue)} offset {_first(state)} for {duration(age_ms)}; "
                f"{waiting} cached",
                "Check what its handler waits for (`Admin.groups.running_info(…, stacks=True)` returns its thread stacks), and set "
                "timeouts for its calls",
            )
    for client_id, leases in _leases(context).items():
        if leases.leased and leases.oldest_ms > context.settings.max_handler_age_ms:
            return broken(
                f"member {client_id} has a leased message for {duration(leases.oldest_ms)}; {count(leases.leased, 'message')} leased",
                "Check what its handler waits for (`Admin.groups.running_info(…, stacks=True)` returns its thread stacks), and set "
                "timeouts for its calls",
            )
    hints = _lease_hints(context) + _failures(context) + await _letters(context)
    cached = sum(_cached(state) for _, _, state in busy)
    return ok(
        f"{count(cached, 'message')} cached or in a handler" if cached else "no message waits for a handler", *hints
    )


def _owned(context: DoctorContext) -> Iterator[Owned]:
    for client_id, info in sorted(context.member_infos.items()):
        for queue, state in sorted(info.mq_table.items(), key=lambda pair: pair[0]):
            if not state.dropped:
                yield client_id, queue, state


def _cached(state: ProcessQueueInfo) -> int:
    return state.cached_msg_count + state.transaction_msg_count


def _first(state: ProcessQueueInfo) -> int:
    """The offset of the first message that is not processed."""
    offsets = [state.cached_msg_min_offset] if state.cached_msg_count else []
    return min(offsets + ([state.transaction_msg_min_offset] if state.transaction_msg_count else []))


async def _handled_for_ms(context: DoctorContext, queue: MessageQueue, state: ProcessQueueInfo) -> int | None:
    """The time since the last processed message, or since the first unprocessed message was stored if that is shorter."""
    since_ms = context.members_ms - state.last_consume_timestamp
    if since_ms <= context.settings.max_handler_age_ms:
        return max(0, since_ms)
    message = await first_at(context.targets, queue, _first(state))
    return None if message is None else min(since_ms, context.members_ms - message.store_ms)


class _Leases(NamedTuple):
    """What one of our consumers that pop says; see `LEASE_KEYS`."""

    leased: int
    oldest_ms: int
    returned: int
    lapsed: int
    rejected: int


def _leases(context: DoctorContext) -> dict[str, _Leases]:
    found: dict[str, _Leases] = {}
    for client_id, info in sorted(context.member_infos.items()):
        numbers = [info.properties.get(key, "") for key in LEASE_KEYS]
        if all(number.isdecimal() for number in numbers):
            found[client_id] = _Leases(*map(int, numbers))
    return found


def _lease_hints(context: DoctorContext) -> list[str]:
    hints: list[str] = []
    for client_id, leases in _leases(context).items():
        if leases.leased:
            hints.append(
                f"member {client_id}: {count(leases.leased, 'message')} leased, the oldest for {duration(leases.oldest_ms)}"
            )
        if leases.lapsed or leases.rejected:
            hints.append(
                f"member {client_id} lost {count(leases.lapsed, 'lease')} and had {count(leases.rejected, 'ack')} rejected since its "
                "start: its process was stopped, or the broker was away, for longer than the invisible time"
            )
    return hints


def _failures(context: DoctorContext) -> list[str]:
    failed: dict[str, int] = {}
    for info in context.member_infos.values():
        for topic, status in info.status_table.items():
            failed[topic] = failed.get(topic, 0) + status.consume_failed_msgs
    return [
        f"handlers failed on {count(many, 'message')} of {context.targets.shown(topic)} in the last hour"
        for topic, many in sorted(failed.items())
        if many
    ]


async def _letters(context: DoctorContext) -> list[str]:
    assert context.group is not None, "only steps of a group count dead letters"
    letters = await context.dead_letters.count(context.group)
    if not letters:
        return []
    return [f"{count(letters, 'dead letter')} of {context.group}: `pocketmq dlq show {context.group}` lists them"]


async def check_offsets(context: DoctorContext) -> Finding:
    """Whether the committed offsets are inside the queues. An unknown lag is never reported as 0."""
    if context.group is None:
        return skipped(NO_GROUP)
    if context.group_state is None:
        return skipped("the group does not exist")
    if context.group_state.message_model is MessageModel.BROADCASTING:
        return unknown("members of a broadcasting group store their own offsets")
    context.lag = lag = await context.offsets.lag(context.group, context.topic)
    for each in lag.queues:
        if each.committed is not None and each.max_offset is not None and each.committed > each.max_offset:
            return broken(
                f"the committed offset of group {context.group} in {each.queue} is {each.committed:,}, beyond the end {each.max_offset:,}: "
                "the topic was created again, or the broker lost messages",
                f"`pocketmq group reset {context.group} {each.queue.topic} --to earliest` (or latest) lets the group continue",
            )
    hints = []
    for each in lag.queues:
        if each.committed is None and each.max_offset is not None:
            hints.append(
                f"no committed offset in {each.queue}; the option start_at of its first consumer decides where it starts"
            )
        elif each.problem:
            hints.append(f"{each.queue}: {each.problem}")
    if lag.messages is None:
        return unknown("the lag of some queues is unknown", *hints)
    time_text = f", {duration(lag.time_ms)}" if lag.time_ms else ""
    if lag.leased:
        time_text += f"; {count(lag.leased, 'message')} leased, {lag.retries:,} waiting for another attempt"
    return ok(f"lag: {count(lag.messages, 'message')}{time_text}", *hints)


async def check_retention(context: DoctorContext) -> Finding:
    """Whether the group reads messages before brokers delete them."""
    retention_ms = {
        broker.name: hours * HOUR_MS
        for broker in context.masters
        if (hours := context.number_setting(broker, RETENTION_KEY))
    }
    if not retention_ms:
        return unknown(f"no broker reported its retention time ({RETENTION_KEY})")
    for each in () if context.lag is None else context.lag.queues:
        kept_ms = retention_ms.get(each.queue.broker_name)
        if each.lost:
            return broken(
                f"{count(each.lost, 'message')} of {each.queue} were deleted before {context.group} read them",
                f"They are lost. Make the group faster, or keep messages longer ({RETENTION_KEY}, more disk). "
                f"`pocketmq group reset {context.group} {each.queue.topic} --to earliest` clears this finding",
            )
        if kept_ms and each.time_ms and each.time_ms * 100 > kept_ms * context.settings.retention_used_percent:
            return broken(
                f"the oldest unread message of {context.group} in {each.queue} is {duration(each.time_ms)} old; the broker deletes it "
                f"after {duration(kept_ms)}",
                f"Make the group faster, or keep messages longer ({RETENTION_KEY})",
            )
    texts = [f"{name} keeps messages for {duration(ms)}" for name, ms in retention_ms.items()]
    return ok("; ".join(texts), *_oldest(context))


def _oldest(context: DoctorContext) -> list[str]:
    """Brokers that deleted messages younger than a day: their disks are too small for this load."""
    hints = []
    for broker, table in context.runtime.items():
        text = table.get("earliestMessageTimeStamp", "")
        if not text.isdigit() or table.get("commitLogMinOffset", "0") == "0":
            continue
        age_ms = max(0, context.now_ms - int(text))
        if age_ms < 24 * HOUR_MS:
            hints.append(
                f"the oldest message at {broker.name} is only {duration(age_ms)} old: its disk is too small for this load"
            )
    return hints

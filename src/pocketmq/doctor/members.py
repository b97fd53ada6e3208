"""The group: who is in it, whether all want the same, and who owns which queue.

What members want and own they are asked themselves, through a broker: brokers remember one subscription for the whole group, the
last that they heard of.
"""

from collections.abc import Mapping

from pocketmq.client.administration.reach import BrokerPlace
from pocketmq.doctor.report import Finding, broken, fine, not_looked_at, unknown
from pocketmq.doctor.rights import or_nearest
from pocketmq.doctor.visit import Visit
from pocketmq.doctor.words import count
from pocketmq.errors import GroupNotFound
from pocketmq.model.names import group_of
from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import ExpressionType, Subscription
from pocketmq.protocol.bodies.heartbeat import MessageModel
from pocketmq.protocol.bodies.running_info import ConsumerRunningInfo

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
        visit.group_state = state = await visit.group_admin.describe(group)
    except GroupNotFound:
        advice = "start a consumer of this group: see that it is given these name servers and the same namespace"
        return broken(f"no broker knows the group {group}", or_nearest(group, await visit.group_admin.names(), advice))
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
        clients, lambda client_id: visit.group_admin.running_info(group, client_id)
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

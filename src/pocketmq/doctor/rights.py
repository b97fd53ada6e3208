"""What may be done, and with what: the account, the brokers, the topic's permissions, and whether there is such a topic."""

import difflib
from collections.abc import Sequence

from pocketmq.client.admin.groups import GroupAdmin
from pocketmq.client.admin.offsets import OffsetAdmin
from pocketmq.client.admin.reach import BrokerPlace
from pocketmq.client.admin.topics import TopicAdmin, TopicState
from pocketmq.doctor.report import Finding, broken, fine, not_looked_at
from pocketmq.doctor.visit import Visit
from pocketmq.errors import GroupNotFound, NoPermission, TopicNotFound
from pocketmq.model.flags import Perm
from pocketmq.model.human import count, duration
from pocketmq.model.names import group_of, is_internal_group
from pocketmq.protocol.bodies.routes import QueueData

PERMISSION_KEY = "brokerPermission"


async def look_at_permission(visit: Visit) -> Finding:
    """Whether the account is let in, and the brokers and the topic may be read and written."""
    if visit.refusals:
        return broken(
            visit.refusals[0],
            "Give an account that exists and has the right (--access-key and its secret), or give it the right",
        )
    if not visit.places:
        return not_looked_at("no broker was reached")
    notes = await _learn_settings(visit)
    for place in visit.masters:
        perm = visit.whole(place, PERMISSION_KEY)
        if perm is not None and perm & Perm.READ_WRITE != Perm.READ_WRITE:
            return broken(
                f"broker {place.name} may not be {_missing(perm)} ({PERMISSION_KEY}={perm})",
                f"`pocketmq cluster config {place.name} --set {PERMISSION_KEY}={int(Perm.READ_WRITE)}` lets it again",
            )
    await _learn_topics(visit)
    for topic in visit.topics:
        for data in await _queue_datas(visit, topic):
            if data.perm & Perm.READ_WRITE != Perm.READ_WRITE:
                return broken(
                    f"topic {topic} on {data.broker_name} may not be {_missing(data.perm)}",
                    f"`pocketmq topic alter {topic} --perm rw` lets it again; if it is the broker that keeps producers away, "
                    "it does so until it registers anew",
                )
    return fine(
        "brokers and topics may be read and written" if visit.topics else "brokers may be read and written", *notes
    )


async def look_at_topic(visit: Visit) -> Finding:
    """Whether it is there, on which brokers, and all of it in reach of readers."""
    if not visit.topics:
        why = "the group reads none" if visit.group else "no topic was named"
        return not_looked_at(why)
    texts: list[str] = []
    notes: list[str] = []
    for topic in visit.topics:
        try:
            state = await TopicAdmin(visit.reach).describe(topic)
        except TopicNotFound:
            return broken(f"no broker has the topic {topic}", await _topic_advice(visit, topic))
        if hidden := _out_of_reach(state):
            return broken(
                f"topic {topic} has {count(hidden, 'message')} in queues that nobody may read any more",
                f"`pocketmq topic alter {topic} --read-queues N` with as many as there are to write, until all is read",
            )
        texts.append(_described(state, visit.now_ms))
        absent = sorted({place.name for place in visit.masters} - set(state.configs))
        notes += [f"topic {topic} is not on broker {name}" for name in absent]
    if visit.topic and not visit.group:
        readers = [name for name in await TopicAdmin(visit.reach).readers(visit.topic) if not is_internal_group(name)]
        notes.append(f"topic {visit.topic} is read by: {', '.join(readers) or 'nobody'}")
    return fine("; ".join(texts), *notes)


def or_nearest(name: str, known: Sequence[str], advice: str) -> str:
    """`advice`, after a question for somebody who may have mistyped."""
    near = difflib.get_close_matches(name, known, 1, 0.6)
    return f"Did you mean {near[0]}? Else {advice}" if near else advice[0].upper() + advice[1:]


async def _learn_settings(visit: Visit) -> list[str]:
    async def ask(place: BrokerPlace) -> None:
        visit.broker_settings[place] = await visit.reach.brokers.state.settings(place.address)

    _, failed = await visit.reach.gather_what_goes(visit.masters, ask)
    refused = [place.name for place, error in failed.items() if isinstance(error, NoPermission)]
    if not refused:
        return []
    return [f"this account may not read the settings of {', '.join(refused)}: what depends on them is unknown"]


async def _learn_topics(visit: Visit) -> None:
    """The topic of the question; else those that the group wants, or has read."""
    if visit.topic is not None:
        visit.topics = (visit.topic,)
    elif visit.group is not None:
        try:
            wanted = set((await GroupAdmin(visit.reach).describe(visit.group)).subscriptions)
        except GroupNotFound:
            return
        if not wanted:
            wanted = {each.queue.topic for each in (await OffsetAdmin(visit.reach).lag(visit.group)).queues}
        visit.topics = tuple(sorted(topic for topic in wanted if not group_of(topic)))


async def _queue_datas(visit: Visit, topic: str) -> Sequence[QueueData]:
    try:
        return (await visit.reach.route(visit.reach.topic(topic))).data.queue_datas
    except TopicNotFound:
        return ()  # the next step says so


async def _topic_advice(visit: Visit, topic: str) -> str:
    made = any(visit.setting(place, "autoCreateTopicEnable") == "true" for place in visit.masters)
    how = ", or send to it: brokers make topics by themselves here" if made else ""
    return or_nearest(topic, await TopicAdmin(visit.reach).names(), f"`pocketmq topic create {topic}` makes it{how}")


def _out_of_reach(state: TopicState) -> int:
    """Messages in queues beyond those that may be read."""
    return sum(
        each.messages
        for each in state.queues
        if each.queue.queue_id >= state.configs[each.queue.broker_name].read_queue_nums
    )


def _described(state: TopicState, now_ms: int) -> str:
    stored = [each.last_store_ms for each in state.queues if each.last_store_ms is not None]
    newest = f", the newest {duration(max(0, now_ms - max(stored)))} old" if stored else ""
    queues = count(len(state.queues), "queue")
    return f"{state.topic} has {queues} on {', '.join(sorted(state.configs))} and {count(state.messages, 'message')}{newest}"


def _missing(perm: int) -> str:
    words = ("read", Perm.READ), ("written", Perm.WRITE)
    return " or ".join(word for word, bit in words if not perm & bit)

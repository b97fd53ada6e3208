"""Checks of permissions and topics."""

from collections.abc import Sequence

from pocketmq.client.admin.targets import BrokerAddress
from pocketmq.client.admin.topics import TopicState
from pocketmq.codes import Perm
from pocketmq.doctor.context import DoctorContext
from pocketmq.doctor.report import Finding, broken, ok, skipped, with_suggestion
from pocketmq.errors import GroupNotFound, NoPermission, TopicNotFound
from pocketmq.model import group_of, is_internal_group
from pocketmq.model.human import count, duration
from pocketmq.protocol.bodies.topics import QueueData

PERMISSION_KEY = "brokerPermission"


async def check_permission(context: DoctorContext) -> Finding:
    """Whether the account, the brokers and the topic allow reading and writing."""
    if context.refusals:
        return broken(
            context.refusals[0],
            "Use an account that has this permission (--access-key and its secret), or grant the permission",
        )
    if not context.brokers:
        return skipped("no broker answered")
    hints = await _load_settings(context)
    for broker in context.masters:
        perm = context.number_setting(broker, PERMISSION_KEY)
        if perm is not None and perm & Perm.READ_WRITE != Perm.READ_WRITE:
            return broken(
                f"broker {broker.name} does not allow {_missing(perm)} ({PERMISSION_KEY}={perm})",
                f"`pocketmq cluster config {broker.name} --set {PERMISSION_KEY}={int(Perm.READ_WRITE)}` allows it again",
            )
    await _load_topics(context)
    for topic in context.topics:
        for data in await _queue_datas(context, topic):
            if data.perm & Perm.READ_WRITE != Perm.READ_WRITE:
                return broken(
                    f"topic {topic} on {data.broker_name} does not allow {_missing(data.perm)}",
                    f"`pocketmq topic alter {topic} --perm rw` allows it again. If write permission of the whole broker was removed, "
                    "it returns with the broker's next registration",
                )
    return ok(
        "brokers and topics allow reading and writing" if context.topics else "brokers allow reading and writing",
        *hints,
    )


async def check_topic(context: DoctorContext) -> Finding:
    """Whether the topic exists, on which brokers, and whether all its messages can be read."""
    if not context.topics:
        why = "the group subscribes to no topic" if context.group else "no topic requested"
        return skipped(why)
    texts: list[str] = []
    hints: list[str] = []
    for topic in context.topics:
        try:
            state = await context.topic_admin.describe(topic)
        except TopicNotFound:
            return broken(
                f"topic {topic} does not exist: No route info of this topic", await _topic_advice(context, topic)
            )
        if hidden := _unreadable(state):
            return broken(
                f"topic {topic} has {count(hidden, 'message')} in queues that consumers can no longer read",
                f"`pocketmq topic alter {topic} --read-queues N`, with at least as many read queues as write queues, until all is consumed",
            )
        texts.append(_described(state, context.now_ms))
        absent = sorted({broker.name for broker in context.masters} - set(state.configs))
        hints += [f"topic {topic} does not exist on broker {name}" for name in absent]
    if context.topic and not context.group:
        groups = [name for name in await context.topic_admin.readers(context.topic) if not is_internal_group(name)]
        hints.append(f"consumer groups of topic {context.topic}: {', '.join(groups) or 'none'}")
    return ok("; ".join(texts), *hints)


async def _load_settings(context: DoctorContext) -> list[str]:
    async def load(broker: BrokerAddress) -> None:
        context.broker_settings[broker] = await context.targets.brokers.state.settings(broker.address)

    _, failed = await context.targets.gather_with_errors(context.masters, load)
    refused = [broker.name for broker, error in failed.items() if isinstance(error, NoPermission)]
    if not refused:
        return []
    return [
        f"the account has no permission to read the settings of {', '.join(refused)}; checks of settings are unknown"
    ]


async def _load_topics(context: DoctorContext) -> None:
    """The requested topic, or the topics that the group subscribes to or has offsets in."""
    if context.topic is not None:
        context.topics = (context.topic,)
    elif context.group is not None:
        try:
            names = set((await context.groups.describe(context.group)).subscriptions)
        except GroupNotFound:
            return
        if not names:
            names = {each.queue.topic for each in (await context.offsets.lag(context.group)).queues}
        context.topics = tuple(sorted(topic for topic in names if not group_of(topic)))


async def _queue_datas(context: DoctorContext, topic: str) -> Sequence[QueueData]:
    try:
        return (await context.targets.route(context.targets.topic(topic))).data.queue_datas
    except TopicNotFound:
        return ()  # the next step reports it


async def _topic_advice(context: DoctorContext, topic: str) -> str:
    creates = any(context.setting(broker, "autoCreateTopicEnable") == "true" for broker in context.masters)
    how = ", or send to it: these brokers create topics automatically" if creates else ""
    return with_suggestion(
        topic, await context.topic_admin.names(), f"create it with `pocketmq topic create {topic}`{how}"
    )


def _unreadable(state: TopicState) -> int:
    """The number of messages in queues that the topic no longer allows to read."""
    return sum(
        each.messages
        for each in state.queues
        if each.queue.queue_id >= state.configs[each.queue.broker_name].read_queue_nums
    )


def _described(state: TopicState, now_ms: int) -> str:
    stored = [each.last_store_ms for each in state.queues if each.last_store_ms is not None]
    newest = f"; the newest is {duration(max(0, now_ms - max(stored)))} old" if stored else ""
    queues = count(len(state.queues), "queue")
    return f"{state.topic} has {queues} on {', '.join(sorted(state.configs))} and {count(state.messages, 'message')}{newest}"


def _missing(perm: int) -> str:
    return " or ".join(text for text, bit in (("reading", Perm.READ), ("writing", Perm.WRITE)) if not perm & bit)

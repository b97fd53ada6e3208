"""Where a read starts and ends, by its options and the queues' bounds. The first option that is set decides.

start   startingTimestamp, startingOffsetsByTimestamp, startingOffsets (a word, or JSON)
end     endingTimestamp,   endingOffsetsByTimestamp,   endingOffsets
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches

from pocketmq.errors import InvalidSetting, PocketMQError, TopicNotFound, WrongState
from pocketmq.model import MessageQueue, QueueRange
from pocketmq.spark.broker_facts import Bounds, Metadata
from pocketmq.spark.options.options import EARLIEST, LATEST
from pocketmq.spark.options.read_options import ReadOptions
from pocketmq.spark.read.data_loss import QueueFacts, find_losses, settle

_MAX_NAMED: int = 5
"""Number of queues that an error names; it only counts the rest."""


def queues_of(options: ReadOptions, metadata: Metadata, read: Collection[MessageQueue] = ()) -> list[MessageQueue]:
    """The queues to read that exist now. Queues of `read`, which the query has read before, may be missing; other missing
    queues raise TopicNotFound or InvalidSetting.
    """
    present, missing = _existing_queues(options, metadata)
    known = {queue.topic for queue in read}
    for topic, failure in missing.items():
        if topic not in known:
            raise _no_such_topic(topic, failure, metadata)
    if unknown := sorted({*(options.queues or ())} - {*present, *read}):
        raise InvalidSetting(f"the option assign names queues that do not exist: {_named(unknown)}")
    return present


def check_checkpoint(options: ReadOptions, queues: Iterable[MessageQueue]) -> None:
    """WrongState if a checkpoint has offsets of `queues`, and the query reads none of their topics."""
    topics = {queue.topic for queue in queues}
    wanted = set(options.topics or ()) | {queue.topic for queue in options.queues or ()}
    if options.pattern is not None:
        wanted = {topic for topic in topics if re.fullmatch(options.pattern, topic)}
    if topics and not topics & wanted:
        what = f"the pattern {options.pattern}" if options.pattern is not None else ", ".join(sorted(wanted))
        raise WrongState(
            f"the checkpoint belongs to a query that reads {', '.join(sorted(topics))}, and this query reads {what}: "
            "set another checkpointLocation"
        )


def present_queues(options: ReadOptions, metadata: Metadata) -> list[MessageQueue]:
    """The queues to read that exist now, ignoring missing ones."""
    return _existing_queues(options, metadata)[0]


def starting_offsets(
    options: ReadOptions, queues: Sequence[MessageQueue], metadata: Metadata
) -> dict[MessageQueue, int]:
    """Where a new query starts in each of `queues`."""
    if options.starting_timestamp is not None:
        times = dict.fromkeys(queues, options.starting_timestamp)
        return _offsets_at(times, metadata, strategy=options.starting_strategy, option="startingTimestamp")
    if options.starting_times is not None:
        times = _complete(options.starting_times, queues, "startingOffsetsByTimestamp")
        return _offsets_at(times, metadata, strategy=options.starting_strategy, option="startingOffsetsByTimestamp")
    bounds = metadata.bounds(queues)
    starting = options.starting_offsets
    if isinstance(starting, dict):
        return _explicit(_complete(starting, queues, "startingOffsets"), bounds, "startingOffsets")
    if starting == "committed":
        committed = metadata.committed(options.group or "", queues)
        return {queue: committed.get(queue, bounds[queue].min) for queue in queues}
    return {queue: bounds[queue].max if starting == "latest" else bounds[queue].min for queue in queues}


def ending_offsets(options: ReadOptions, queues: Sequence[MessageQueue], metadata: Metadata) -> dict[MessageQueue, int]:
    """Where a batch ends in each of `queues`. If no message has reached a time yet, that is the end of the queue."""
    times = options.ending_times
    if options.ending_timestamp is not None:
        times = dict.fromkeys(queues, options.ending_timestamp)
    if times is not None:
        return metadata.offsets_at(_complete(times, queues, "endingOffsetsByTimestamp"))
    bounds = metadata.bounds(queues)
    if isinstance(options.ending_offsets, dict):
        return _explicit(_complete(options.ending_offsets, queues, "endingOffsets"), bounds, "endingOffsets")
    return {queue: bounds[queue].max for queue in queues}


def batch_ranges(options: ReadOptions, metadata: Metadata) -> list[QueueRange]:
    """The ranges of a batch; DataLost if messages of them were deleted and the policy is to fail."""
    queues = queues_of(options, metadata)
    starts = starting_offsets(options, queues, metadata)
    ends = ending_offsets(options, queues, metadata)
    facts = {queue: QueueFacts(bounds) for queue, bounds in metadata.bounds(queues).items()}
    starts |= settle(find_losses(starts, facts, 0), facts, options.on_data_loss)
    return [QueueRange(queue, starts[queue], ends[queue]) for queue in queues if starts[queue] < ends[queue]]


def _existing_queues(options: ReadOptions, metadata: Metadata) -> tuple[list[MessageQueue], dict[str, TopicNotFound]]:
    """The requested queues that exist, and the errors for topics that an option names and that do not exist."""
    found: set[MessageQueue] = set()
    missing: dict[str, TopicNotFound] = {}
    for topic in _topics(options, metadata):
        try:
            found.update(metadata.queues(topic))
        except TopicNotFound as error:
            if options.pattern is None:  # with a pattern, the topic was deleted a moment ago
                missing[topic] = error
    return sorted(found if options.queues is None else found.intersection(options.queues)), missing


def _no_such_topic(topic: str, failure: TopicNotFound, metadata: Metadata) -> TopicNotFound:
    """The failure, with the nearest topic name as a hint. Accounts that may not list topics get no hint."""
    try:
        known = metadata.topics()
    except PocketMQError:
        return failure
    return failure if topic in known else TopicNotFound(no_such_topic(topic, known))


def no_such_topic(topic: str, known: Sequence[str]) -> str:
    """The error text for a topic that does not exist."""
    near = get_close_matches(topic, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return f"topic {topic!r} does not exist{hint} `pocketmq topic ls` lists the topics"


def _topics(options: ReadOptions, metadata: Metadata) -> Iterable[str]:
    if options.pattern is not None:
        pattern = re.compile(options.pattern)
        return [topic for topic in metadata.topics() if pattern.fullmatch(topic)]
    return options.topics or {queue.topic for queue in options.queues or ()}


def _offsets_at(
    times: Mapping[MessageQueue, int], metadata: Metadata, *, strategy: str, option: str
) -> dict[MessageQueue, int]:
    offsets = metadata.offsets_at(times)
    # Bounds second: a message that arrives in between then makes an offset valid, never invalid.
    bounds = metadata.bounds(list(offsets))
    if strategy == "error" and (
        missing := sorted(queue for queue, offset in offsets.items() if offset >= bounds[queue].max)
    ):
        raise InvalidSetting(
            f"the option {option}: {_named(missing)} has no message at or after that time; set "
            "startingOffsetsByTimestampStrategy = latest to start at the end of such queues"
        )
    return offsets


def _explicit(
    offsets: Mapping[MessageQueue, int], bounds: Mapping[MessageQueue, Bounds], option: str
) -> dict[MessageQueue, int]:
    found = {}
    for queue, offset in offsets.items():
        low, high = bounds[queue]
        found[queue] = {EARLIEST: low, LATEST: high}.get(offset, offset)
        if found[queue] > high:
            raise InvalidSetting(f"the option {option}: {queue} ends at {high}, before {offset}")
    return found


def _complete(
    given: Mapping[MessageQueue, int], queues: Sequence[MessageQueue], option: str
) -> dict[MessageQueue, int]:
    """`given`, if it has all of `queues` and no others."""
    if missing := [queue for queue in queues if queue not in given]:
        raise InvalidSetting(f"the option {option} has no value for {_named(missing)}; name every queue")
    if unknown := sorted(given.keys() - set(queues)):
        raise InvalidSetting(f"the option {option} names queues that are not read: {_named(unknown)}")
    return dict(given)


def _named(queues: Iterable[MessageQueue]) -> str:
    texts = [str(queue) for queue in queues]
    more = f" and {len(texts) - _MAX_NAMED} more" if len(texts) > _MAX_NAMED else ""
    return ", ".join(texts[:_MAX_NAMED]) + more

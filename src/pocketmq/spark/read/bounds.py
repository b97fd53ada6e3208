"""Where a read begins and ends: what its options say, put to the brokers.

starting   startingTimestamp ── else startingOffsetsByTimestamp ── else startingOffsets: a word, or JSON
ending     endingTimestamp   ── else endingOffsetsByTimestamp   ── else endingOffsets
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches

from pocketmq.errors import InvalidSetting, PocketMQError, TopicNotFound, WrongState
from pocketmq.model.queue import MessageQueue
from pocketmq.spark.broker_facts import Bounds, Metadata
from pocketmq.spark.options.options import EARLIEST, LATEST
from pocketmq.spark.options.read_options import ReadOptions

_NAMED: int = 5
"""How many queues an error names before it only counts them."""


def queues_of(options: ReadOptions, metadata: Metadata, read: Collection[MessageQueue] = ()) -> list[MessageQueue]:
    """The queues that are read, as they are now. Those of `read`, that the query has read before, need not be there any more;
    TopicNotFound or InvalidSetting for others that are not.
    """
    present, missing = _looked_up(options, metadata)
    known = {queue.topic for queue in read}
    for topic, failure in missing.items():
        if topic not in known:
            raise _no_such_topic(topic, failure, metadata)
    if unknown := sorted({*(options.queues or ())} - {*present, *read}):
        raise InvalidSetting(f"the option assign names queues that do not exist: {_named(unknown)}")
    return present


def check_checkpoint(options: ReadOptions, queues: Iterable[MessageQueue]) -> None:
    """WrongState when a checkpoint has offsets of `queues`, and the query reads none of their topics."""
    topics = {queue.topic for queue in queues}
    wanted = set(options.topics or ()) | {queue.topic for queue in options.queues or ()}
    if options.pattern is not None:
        wanted = {topic for topic in topics if re.fullmatch(options.pattern, topic)}
    if topics and not topics & wanted:
        what = f"the pattern {options.pattern}" if options.pattern is not None else ", ".join(sorted(wanted))
        raise WrongState(
            f"the checkpoint belongs to a query that reads {', '.join(sorted(topics))}, and this query reads {what}: "
            "give it a checkpointLocation of its own"
        )


def present_queues(options: ReadOptions, metadata: Metadata) -> list[MessageQueue]:
    """The same for whom it does not matter what is not there."""
    return _looked_up(options, metadata)[0]


def starting_places(
    options: ReadOptions, queues: Sequence[MessageQueue], metadata: Metadata
) -> dict[MessageQueue, int]:
    """Where a new query begins in each of `queues`."""
    if options.starting_timestamp is not None:
        times = dict.fromkeys(queues, options.starting_timestamp)
        return _places_at(times, metadata, strategy=options.starting_strategy, option="startingTimestamp")
    if options.starting_times is not None:
        times = _complete(options.starting_times, queues, "startingOffsetsByTimestamp")
        return _places_at(times, metadata, strategy=options.starting_strategy, option="startingOffsetsByTimestamp")
    bounds = metadata.bounds(queues)
    starting = options.starting_offsets
    if isinstance(starting, dict):
        return _explicit(_complete(starting, queues, "startingOffsets"), bounds, "startingOffsets")
    if starting == "committed":
        committed = metadata.committed(options.group or "", queues)
        return {queue: committed.get(queue, bounds[queue].min) for queue in queues}
    return {queue: bounds[queue].max if starting == "latest" else bounds[queue].min for queue in queues}


def ending_places(options: ReadOptions, queues: Sequence[MessageQueue], metadata: Metadata) -> dict[MessageQueue, int]:
    """Where a batch ends in each of `queues`. A time that no message has reached is the end of the queue."""
    times = options.ending_times
    if options.ending_timestamp is not None:
        times = dict.fromkeys(queues, options.ending_timestamp)
    if times is not None:
        return metadata.offsets_at(_complete(times, queues, "endingOffsetsByTimestamp"))
    bounds = metadata.bounds(queues)
    if isinstance(options.ending_offsets, dict):
        return _explicit(_complete(options.ending_offsets, queues, "endingOffsets"), bounds, "endingOffsets")
    return {queue: bounds[queue].max for queue in queues}


def _looked_up(options: ReadOptions, metadata: Metadata) -> tuple[list[MessageQueue], dict[str, TopicNotFound]]:
    """The wanted queues that are there, and why topics that an option names are not."""
    found: set[MessageQueue] = set()
    missing: dict[str, TopicNotFound] = {}
    for topic in _topics(options, metadata):
        try:
            found.update(metadata.queues(topic))
        except TopicNotFound as error:
            if options.pattern is None:  # else it was there a moment ago, and nobody named it
                missing[topic] = error
    return sorted(found if options.queues is None else found.intersection(options.queues)), missing


def _no_such_topic(topic: str, failure: TopicNotFound, metadata: Metadata) -> TopicNotFound:
    """The failure, with the topic that was meant if one is named nearly the same. Accounts that may not list topics get no hint."""
    try:
        known = metadata.topics()
    except PocketMQError:
        return failure
    return failure if topic in known else TopicNotFound(no_such_topic(topic, known))


def no_such_topic(topic: str, known: Sequence[str]) -> str:
    """The sentence about a topic that does not exist."""
    near = get_close_matches(topic, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return f"there is no topic {topic!r}{hint} `pocketmq topic ls` lists the topics that exist"


def _topics(options: ReadOptions, metadata: Metadata) -> Iterable[str]:
    if options.pattern is not None:
        pattern = re.compile(options.pattern)
        return [topic for topic in metadata.topics() if pattern.fullmatch(topic)]
    return options.topics or {queue.topic for queue in options.queues or ()}


def _places_at(
    times: Mapping[MessageQueue, int], metadata: Metadata, *, strategy: str, option: str
) -> dict[MessageQueue, int]:
    places = metadata.offsets_at(times)
    # Asked second, so that a message that comes in between makes a place seem found, never a found one seem missing.
    bounds = metadata.bounds(list(places))
    if strategy == "error" and (
        missing := sorted(queue for queue, place in places.items() if place >= bounds[queue].max)
    ):
        raise InvalidSetting(
            f"the option {option}: no message is that new in {_named(missing)}; "
            "set startingOffsetsByTimestampStrategy = latest to begin at the end there"
        )
    return places


def _explicit(
    places: Mapping[MessageQueue, int], bounds: Mapping[MessageQueue, Bounds], option: str
) -> dict[MessageQueue, int]:
    found = {}
    for queue, place in places.items():
        held = bounds[queue]
        found[queue] = {EARLIEST: held.min, LATEST: held.max}.get(place, place)
        if found[queue] > held.max:
            raise InvalidSetting(f"the option {option}: {queue} ends at {held.max}, before {place}")
    return found


def _complete(
    given: Mapping[MessageQueue, int], queues: Sequence[MessageQueue], option: str
) -> dict[MessageQueue, int]:
    """`given`, if it speaks of all of `queues` and of no others."""
    if missing := [queue for queue in queues if queue not in given]:
        raise InvalidSetting(f"the option {option} says nothing about {_named(missing)}; name every queue")
    if unknown := sorted(given.keys() - set(queues)):
        raise InvalidSetting(f"the option {option} names queues that are not read: {_named(unknown)}")
    return dict(given)


def _named(queues: Iterable[MessageQueue]) -> str:
    texts = [str(queue) for queue in queues]
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return ", ".join(texts[:_NAMED]) + more

"""The blocking class of each client has the methods of the async one."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from pocketmq.client import (
    Admin,
    AsyncAdmin,
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    AsyncSimpleConsumer,
    BlockingTransaction,
    LitePullConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
    SimpleConsumer,
    Transaction,
)

FACES = [
    (AsyncProducer, Producer),
    (AsyncPushConsumer, PushConsumer),
    (AsyncLitePullConsumer, LitePullConsumer),
    (AsyncPullConsumer, PullConsumer),
    (AsyncSimpleConsumer, SimpleConsumer),
    (AsyncAdmin, Admin),
    (Transaction, BlockingTransaction),
]

ONLY_ASYNC = {
    "dependencies": "virtual time and networks are for a loop of your own",
    "wait_for_capacity": "a thread that submits waits for capacity by itself",
    "poll_messages": "how the blocking face polls",
    "next_message": "how the blocking face iterates",
    "finish_polled": "how the blocking face is left",
    "deliver": "how the blocking face sends",
    "submit_from_thread": "how the blocking face submits",
    "cancel_tasks": "how the blocking face ends scheduled pulls before its stop",
    "member": "what it is made of, for code that packs messages by itself",
    "targets": "what the operations of the administrator share",
    "addressed": "how the blocking face makes messages",
}
ONLY_BLOCKING = {
    "core": "the async client behind it",
    "call": "how it is asked",
    "configure": "how it is configured before its start",
    "state": "an attribute of the async one",
}
AWAITED = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__"}


def words(face: type) -> dict[str, Any]:
    """Its public methods and properties, as one calls them without awaiting."""
    found = {AWAITED.get(name, name): inspect.getattr_static(face, name) for name in dir(face)}
    return {name: thing for name, thing in found.items() if not name.startswith("_") or name in AWAITED.values()}


def parameters(function: Callable[..., object]) -> list[tuple[str, object, object]]:
    return [(one.name, one.kind, one.default) for one in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize(("face", "blocking"), FACES)
def test_both_classes_have_the_same_methods(face: type, blocking: type) -> None:
    ours, theirs = words(face), words(blocking)

    assert ours.keys() - theirs.keys() <= ONLY_ASYNC.keys()
    assert theirs.keys() - ours.keys() <= ONLY_BLOCKING.keys()


@pytest.mark.parametrize(("face", "blocking"), FACES)
def test_methods_of_both_classes_have_the_same_parameters(face: type, blocking: type) -> None:
    ours, theirs = words(face), words(blocking)

    for name in ours.keys() & theirs.keys() - set(AWAITED.values()):
        assert isinstance(ours[name], property) == isinstance(theirs[name], property), name
        if callable(ours[name]):
            assert parameters(ours[name]) == parameters(theirs[name]), name


@pytest.mark.parametrize(("face", "blocking"), FACES[:-1])
def test_both_classes_have_the_same_constructor(face: type, blocking: type) -> None:
    ours = [one for one in parameters(face) if one[0] not in ONLY_ASYNC]

    assert ours == parameters(blocking)


def test_the_parts_of_both_admins_have_the_same_methods() -> None:
    families, blocking_families = (
        {name: type(thing) for name, thing in vars(admin).items() if not name.startswith("_")}
        for admin in (AsyncAdmin(), Admin())
    )

    assert len(families) == 9
    assert families.keys() == blocking_families.keys()
    for name, family in families.items():
        assert words(family).keys() == words(blocking_families[name]).keys() - ONLY_BLOCKING.keys(), name

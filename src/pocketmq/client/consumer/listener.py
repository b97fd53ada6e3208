"""A listener: a function of the user, and what it is called with.

    def handle(message)                          the message
    def handle(message: StoredMessage)           the message
    def handle(body: bytes), (text: str)         its body, as it is or as text
    def handle(order: Order)                     its body, read as JSON: a dataclass, msgspec Struct, TypedDict, pydantic model …
    def handle(order: Order, message)            both
    with batch_size=32: def handle(orders: list[Order])     a list of the same; a second list holds the messages

A body that cannot be read is a failure of the listener like any other: the message comes again, and in the end is a dead letter
that says why.
"""

import inspect
import pickle
import typing
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from pocketmq.client.lifecycle import is_async
from pocketmq.client.received import NOT_PLAIN, original_topic, readable
from pocketmq.errors import InvalidSetting, PocketMQError, UsageError
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import RETRY_PREFIX

Read = Callable[[StoredMessage], Any]
"""From a message to what a listener wants of it."""

Unit = StoredMessage | Sequence[StoredMessage]
"""What one call is about: a message, or some of them for a listener of batches."""

MAX_BATCH_SIZE: Final = 1024
"""Messages of one call, as RocketMQ bounds consumeMessageBatchMaxSize."""
_AS_IT_IS = (inspect.Parameter.empty, Any, object, StoredMessage)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Listener:
    """`batch_size` None: one message a call; else a list of so many at most, also when there is just one."""

    __slots__ = (
        "_reads",
        "_takes_them_as_they_are",
        "_wants_messages_only",
        "batch_size",
        "function",
        "is_async",
        "namespace",
    )

    def __init__(
        self, function: Callable[..., Any], batch_size: int | None = None, namespace: str | None = None
    ) -> None:
        if not callable(function):
            raise UsageError(f"{function!r} cannot be a listener: give a function")
        if batch_size is not None and (type(batch_size) is not int or not 1 <= batch_size <= MAX_BATCH_SIZE):
            nearest = MAX_BATCH_SIZE if type(batch_size) is int and batch_size > 1 else 1
            raise InvalidSetting(
                f"batch_size = {batch_size!r} must be a whole number from 1 to {MAX_BATCH_SIZE}, for example "
                f"batch_size={nearest}; leave it out for one message a call"
            )
        self.function = function
        self.batch_size = batch_size
        self.namespace = namespace
        self.is_async = is_async(function)
        self._reads = _reads(function, is_batch=batch_size is not None)
        self._wants_messages_only = self._reads == [_itself]
        self._takes_them_as_they_are = self._wants_messages_only and batch_size is None and namespace is None

    def __repr__(self) -> str:
        return f"<Listener {_name(self.function)}>"

    @property
    def name(self) -> str:
        """Its function, as `module.function`."""
        return f"{getattr(self.function, '__module__', None) or '?'}.{_name(self.function)}"

    def units(self, messages: Sequence[StoredMessage]) -> Sequence[Unit]:
        """What the calls for these messages are about."""
        size = self.batch_size
        return messages if size is None else [messages[at : at + size] for at in range(0, len(messages), size)]

    def caller(self, messages: Sequence[StoredMessage]) -> Callable[[Any], Any]:
        """What to call with each unit of these messages, which are of one queue.

        That is the function itself for one that wants messages, if these can be given to it as they came: what most are.
        """
        if not self._takes_them_as_they_are or messages[0].topic.startswith(RETRY_PREFIX):
            return self.call
        flags = {one.sys_flag for one in messages}  # mostly all are 0
        are_plain = not any(flags) or not any(flag & NOT_PLAIN for flag in flags)
        return self.function if are_plain else self.call

    def call(self, unit: Unit) -> Any:
        """What the function returns for messages as they came over the wire."""
        return self.function(*self.arguments([unit] if isinstance(unit, StoredMessage) else unit))

    def apart(self, unit: Unit) -> list[Unit]:
        """The same messages in several units, so that those whose bodies cannot be read fail alone; at least two, or none."""
        if isinstance(unit, StoredMessage) or len(unit) < 2:
            return []
        parts = [(is_bad, list(found)) for is_bad, found in groupby(unit, self._is_unreadable)]
        units: list[Unit] = []
        for is_bad, found in parts:
            units += [[one] for one in found] if is_bad else [found]
        return units if len(units) > 1 else []

    def _is_unreadable(self, message: StoredMessage) -> bool:
        try:
            as_seen(message, self.namespace)
        except PocketMQError:
            return True
        return False

    def arguments(self, messages: Sequence[StoredMessage]) -> tuple[Any, ...]:
        """What to call the function with, for messages as they came over the wire."""
        if self.batch_size is None:
            message = messages[0]
            if message.sys_flag & NOT_PLAIN or self.namespace is not None or message.topic.startswith(RETRY_PREFIX):
                message = as_seen(message, self.namespace)
            return (message,) if self._wants_messages_only else tuple(read(message) for read in self._reads)
        seen = [as_seen(message, self.namespace) for message in messages]
        return (seen,) if self._wants_messages_only else tuple([read(one) for one in seen] for read in self._reads)


def as_seen(message: StoredMessage, namespace: str | None) -> StoredMessage:
    """A message as listeners see it: of the topic that it was sent to, with its body not compressed any more."""
    if message.topic.startswith(RETRY_PREFIX):
        message = replace(message, topic=original_topic(message))
    if namespace is None and not message.sys_flag & NOT_PLAIN:
        return message
    return readable(message, namespace)


def _reads(function: Callable[..., Any], *, is_batch: bool) -> list[Read]:
    name = _name(function)
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return [_itself]  # written in C, and does not say
    parameters = [one for one in found if one.kind in _POSITIONAL]
    if not parameters and any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in found):
        return [_itself]
    needed = [one for one in parameters if one.default is inspect.Parameter.empty]
    if not parameters or len(needed) > 2:
        raise UsageError(f"listener {name} must take a message, or what is in it and then the message")
    wanted = needed or parameters[:1]
    hints = _hints(function, name)
    first = _read(_element(hints.get(wanted[0].name, wanted[0].annotation), name, is_batch=is_batch), name)
    return [first] if len(wanted) == 1 else [first, _itself]


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return typing.get_type_hints(target)
    except NameError as error:
        annotations = getattr(target, "__annotations__", {})
        texts = [text for text in annotations.values() if isinstance(text, str)]
        if all("StoredMessage" in text or text == "None" for text in texts):
            return {}  # it is imported for type checkers only
        raise UsageError(f"an annotation of listener {name} cannot be found at run time: {error}") from None
    except TypeError:
        return {}


def _element(hint: Any, name: str, *, is_batch: bool) -> Any:
    """The type of one: of a batch, that of its elements."""
    if not is_batch or isinstance(hint, str) or hint in _AS_IT_IS:
        return Any if isinstance(hint, str) else hint
    if hint in (list, tuple, Sequence):
        return Any
    inside = typing.get_args(hint)
    if not inside:
        raise UsageError(f"listener {name} gets batches: annotate its parameter as a list, not as {hint}")
    return inside[0]


def _read(hint: Any, name: str) -> Read:
    if hint in _AS_IT_IS:
        return _itself
    if hint is bytes:
        return _body
    if hint is str:
        return _text
    validate = getattr(hint, "model_validate_json", None)
    if validate is not None:  # pydantic
        return lambda message: validate(message.body)
    try:
        decode = msgspec.json.Decoder(hint).decode
        is_known = not isinstance(msgspec.inspect.type_info(hint), msgspec.inspect.CustomType)
    except (TypeError, ValueError):
        is_known = False
    if not is_known:
        raise UsageError(
            f"listener {name} wants {hint}, which cannot be read from JSON: annotate it as StoredMessage, bytes, str, "
            "a dataclass, a TypedDict, a msgspec Struct or a pydantic model"
        )
    return lambda message: decode(message.body)


def _itself(message: StoredMessage) -> StoredMessage:
    return message


def _body(message: StoredMessage) -> bytes:
    return message.body


def _text(message: StoredMessage) -> str:
    return message.body.decode()


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


class ListenerTable:
    """The listeners of a group, by topic as it is called on the wire. A message that comes again goes to that of its own topic."""

    def __init__(self, group: str) -> None:
        self._retry_topic = RETRY_PREFIX + group
        self._by_topic: dict[str, Listener] = {}
        self.only: dict[str, Listener] = {}
        """By topic, the listener of all its messages; the retry topic is missing when there are several."""

    def __len__(self) -> int:
        return len(self._by_topic)

    def __contains__(self, topic: str) -> bool:
        return topic in self._by_topic

    def put(self, topic: str, listener: Listener) -> None:
        self._by_topic[topic] = listener
        self._set_only()

    def remove(self, topic: str) -> None:
        self._by_topic.pop(topic, None)
        self._set_only()

    def _set_only(self) -> None:
        self.only.clear()
        self.only |= self._by_topic
        if len(self._by_topic) == 1:
            self.only[self._retry_topic] = next(iter(self._by_topic.values()))

    def require_movable(self) -> None:
        """UsageError for a plain listener that no other process could find."""
        for listener in self._by_topic.values():
            require_movable(listener)

    def of(self, message: StoredMessage) -> Listener | None:
        return self._by_topic.get(original_topic(message))


def require_movable(listener: Listener) -> None:
    """UsageError for a plain listener that no other process could find."""
    if listener.is_async:
        return
    try:
        pickle.dumps(listener.function)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError(
            f"{listener!r} cannot be called in another process: define it at the top of a module ({error})"
        ) from None

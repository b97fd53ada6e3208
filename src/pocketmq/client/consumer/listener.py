"""Listeners: functions of the user, and the arguments they are called with.

    def handle(message)                          the message
    def handle(message: StoredMessage)           the message
    def handle(body: bytes), (text: str)         its body, as bytes or text
    def handle(order: Order)                     its body, decoded from JSON: dataclass, msgspec Struct, TypedDict, pydantic model …
    def handle(order: Order, message)            both
    with batch_size=32: def handle(orders: list[Order])     a list of the same; a second list has the messages

A body that cannot be decoded counts as a failure of the listener: the message is retried, and at last becomes a dead letter with the reason.
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
from pocketmq.model import StoredMessage
from pocketmq.model.names import RETRY_PREFIX

Read = Callable[[StoredMessage], Any]
"""Makes an argument of a listener from a message."""

Unit = StoredMessage | Sequence[StoredMessage]
"""The messages of one call: one, or several for a batch listener."""

MAX_BATCH_SIZE: Final = 1024
"""Messages of one call, RocketMQ's limit for consumeMessageBatchMaxSize."""
_AS_IT_IS = (inspect.Parameter.empty, Any, object, StoredMessage)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Listener:
    """With `batch_size` None, one message per call; else a list of at most so many, even for a single message."""

    __slots__ = (
        "_gets_raw_messages",
        "_only_messages",
        "_reads",
        "batch_size",
        "function",
        "is_async",
        "namespace",
    )

    def __init__(
        self, function: Callable[..., Any], batch_size: int | None = None, namespace: str | None = None
    ) -> None:
        if not callable(function):
            raise UsageError(f"{function!r} cannot be a listener; expected a function")
        if batch_size is not None and (type(batch_size) is not int or not 1 <= batch_size <= MAX_BATCH_SIZE):
            nearest = MAX_BATCH_SIZE if type(batch_size) is int and batch_size > 1 else 1
            raise InvalidSetting(
                f"batch_size = {batch_size!r} must be a whole number from 1 to {MAX_BATCH_SIZE}, for example "
                f"batch_size={nearest}; omit it for one message per call"
            )
        self.function = function
        self.batch_size = batch_size
        self.namespace = namespace
        self.is_async = is_async(function)
        self._reads = _reads(function, is_batch=batch_size is not None)
        self._only_messages = self._reads == [_itself]
        self._gets_raw_messages = self._only_messages and batch_size is None and namespace is None

    def __repr__(self) -> str:
        return f"<Listener {_name(self.function)}>"

    @property
    def name(self) -> str:
        """The function as `module.function`."""
        return f"{getattr(self.function, '__module__', None) or '?'}.{_name(self.function)}"

    def units(self, messages: Sequence[StoredMessage]) -> Sequence[Unit]:
        """The messages of each call."""
        size = self.batch_size
        return messages if size is None else [messages[at : at + size] for at in range(0, len(messages), size)]

    def caller(self, messages: Sequence[StoredMessage]) -> Callable[[Any], Any]:
        """The function to call with each unit of these messages of one queue.

        It is the user's function itself if that takes messages, and these need no preparation: the usual case.
        """
        if not self._gets_raw_messages or messages[0].topic.startswith(RETRY_PREFIX):
            return self.call
        flags = {one.sys_flag for one in messages}  # mostly all are 0
        are_plain = not any(flags) or not any(flag & NOT_PLAIN for flag in flags)
        return self.function if are_plain else self.call

    def call(self, unit: Unit) -> Any:
        """Call the function with prepared messages."""
        return self.function(*self.arguments([unit] if isinstance(unit, StoredMessage) else unit))

    def split_unreadable(self, unit: Unit) -> list[Unit]:
        """Split a batch so that unreadable messages fail alone. Empty if there is nothing to split."""
        if isinstance(unit, StoredMessage) or len(unit) < 2:
            return []
        parts = [(is_bad, list(found)) for is_bad, found in groupby(unit, self._is_unreadable)]
        units: list[Unit] = []
        for is_bad, found in parts:
            units += [[one] for one in found] if is_bad else [found]
        return units if len(units) > 1 else []

    def _is_unreadable(self, message: StoredMessage) -> bool:
        try:
            for_user(message, self.namespace)
        except PocketMQError:
            return True
        return False

    def arguments(self, messages: Sequence[StoredMessage]) -> tuple[Any, ...]:
        """The arguments of the function for pulled messages."""
        if self.batch_size is None:
            message = messages[0]
            if message.sys_flag & NOT_PLAIN or self.namespace is not None or message.topic.startswith(RETRY_PREFIX):
                message = for_user(message, self.namespace)
            return (message,) if self._only_messages else tuple(read(message) for read in self._reads)
        prepared = [for_user(message, self.namespace) for message in messages]
        if self._only_messages:
            return (prepared,)
        return tuple([read(message) for message in prepared] for read in self._reads)


def for_user(message: StoredMessage, namespace: str | None) -> StoredMessage:
    """A message as listeners get it: with its original topic, and its body decompressed."""
    if message.topic.startswith(RETRY_PREFIX):
        message = replace(message, topic=original_topic(message))
    if namespace is None and not message.sys_flag & NOT_PLAIN:
        return message
    return readable(message, namespace)


def readable_prefix(
    messages: Sequence[StoredMessage], namespace: str | None
) -> tuple[list[StoredMessage], PocketMQError | None]:
    """The messages up to the first unreadable one, prepared for the user, and the error of that one."""
    prepared: list[StoredMessage] = []
    for message in messages:
        try:
            prepared.append(for_user(message, namespace))
        except PocketMQError as error:
            return prepared, error
    return prepared, None


def _reads(function: Callable[..., Any], *, is_batch: bool) -> list[Read]:
    name = _name(function)
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return [_itself]  # a function written in C without a signature
    parameters = [one for one in found if one.kind in _POSITIONAL]
    if not parameters and any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in found):
        return [_itself]
    needed = [one for one in parameters if one.default is inspect.Parameter.empty]
    if not parameters or len(needed) > 2:
        raise UsageError(f"listener {name} must take a message, or its content and then the message")
    used = needed or parameters[:1]
    hints = _hints(function, name)
    first = _read(_element(hints.get(used[0].name, used[0].annotation), name, is_batch=is_batch), name)
    return [first] if len(used) == 1 else [first, _itself]


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return typing.get_type_hints(target)
    except NameError as error:
        annotations = getattr(target, "__annotations__", {})
        texts = [text for text in annotations.values() if isinstance(text, str)]
        if all("StoredMessage" in text or text == "None" for text in texts):
            return {}  # StoredMessage is imported for type checkers only
        raise UsageError(f"an annotation of listener {name} cannot be found at run time: {error}") from None
    except TypeError:
        return {}


def _element(hint: Any, name: str, *, is_batch: bool) -> Any:
    """The annotated type of a message; of a batch, the type of its elements."""
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
            f"listener {name} is annotated with {hint}, which cannot be decoded from JSON: annotate it as StoredMessage, "
            "bytes, str, a dataclass, a TypedDict, a msgspec Struct or a pydantic model"
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
    """The listeners of a group, by wire topic. A retried message goes to the listener of its original topic."""

    def __init__(self, group: str) -> None:
        self._retry_topic = RETRY_PREFIX + group
        self._by_topic: dict[str, Listener] = {}
        self.only: dict[str, Listener] = {}
        """The listener of all messages of a wire topic. The retry topic is missing if there are several listeners."""

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

    @property
    def largest_batch(self) -> int:
        """The largest number of messages of one call."""
        return max((listener.batch_size or 1 for listener in self._by_topic.values()), default=1)

    def require_picklable(self) -> None:
        """Raise UsageError for a plain listener that cannot be called in another process."""
        for listener in self._by_topic.values():
            require_picklable(listener)

    def of(self, message: StoredMessage) -> Listener | None:
        return self._by_topic.get(original_topic(message))


def require_picklable(listener: Listener) -> None:
    """Raise UsageError for a plain listener that cannot be called in another process."""
    if listener.is_async:
        return
    try:
        pickle.dumps(listener.function)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError(
            f"{listener!r} cannot be called in another process: define it at the top of a module ({error})"
        ) from None

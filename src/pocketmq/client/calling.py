"""Calling functions of users: `async def` ones on the loop, plain ones in a thread, so that none of them stops the loop."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

T = TypeVar("T")


def is_async(function: Callable[..., object]) -> bool:
    """Whether calling it gives something to await: an `async def`, a partial of one, or an object with such a `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


async def call(function: Callable[..., T | Awaitable[T]], *args: Any) -> T:
    """What `function` comes to."""
    if is_async(function):
        return await cast("Awaitable[T]", function(*args))
    outcome = await asyncio.to_thread(function, *args)
    return await outcome if inspect.isawaitable(outcome) else outcome

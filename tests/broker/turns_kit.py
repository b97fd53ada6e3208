"""What the tests of turns have in common: requests under way, and when they were answered."""

import asyncio
from collections.abc import Awaitable
from typing import Any, NamedTuple

from tests.broker.running import Client

from pocketmq.protocol.command import Command


class Timed(NamedTuple):
    """An answer and its time, in seconds after the request."""

    seconds: float
    answer: Command

    @property
    def code(self) -> int:
        return self.answer.code

    @property
    def words(self) -> str:
        """The word in brackets by which clients recognise a refusal."""
        return (self.answer.remark or "").partition("]")[0].lstrip("[")


async def timed(asked: Awaitable[Command]) -> Timed:
    loop = asyncio.get_running_loop()
    began = loop.time()
    answer = await asked
    return Timed(round(loop.time() - began, 3), answer)


def asked(client: Client, *args: Any, **fields: Any) -> "asyncio.Task[Timed]":
    """A request under way."""
    return asyncio.ensure_future(timed(client.ask(*args, **fields)))


def sent(client: Client, body: bytes = b"body", **fields: Any) -> "asyncio.Task[Timed]":
    """A send under way."""
    return asyncio.ensure_future(timed(client.send(body, **fields)))

"""What the calls need to reach a broker, and how they read what it answers."""

from collections.abc import Mapping
from typing import Protocol, TypeVar

from pocketmq.codes import RequestCode
from pocketmq.net.address import Address
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import Fields
from pocketmq.protocol.java_json import read_body

T = TypeVar("T")

Target = str | Address
"""A broker's name, meaning its master, or an address."""


class Asking(Protocol):
    """A way to ask brokers; see `brokers.Brokers`."""

    def holders(self, name: str) -> list[Address]:
        """Every broker of this name, the master first."""

    async def ask(
        self,
        target: Target,
        code: RequestCode,
        header: Fields | None = None,
        body: bytes = b"",
        *,
        extra: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Command: ...

    async def call(
        self,
        target: Target,
        code: RequestCode,
        header: Fields | None = None,
        body: bytes = b"",
        *,
        extra: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Command: ...

    async def tell(
        self,
        target: Target,
        code: RequestCode,
        header: Fields | None = None,
        body: bytes = b"",
        *,
        extra: Mapping[str, str] | None = None,
    ) -> None: ...


class Calls:
    """Base of the families of calls."""

    __slots__ = ("_brokers",)

    def __init__(self, brokers: Asking) -> None:
        self._brokers = brokers

    async def _read(
        self, target: Target, code: RequestCode, kind: type[T], header: Fields | None = None, body: bytes = b""
    ) -> T:
        """The body of the answer, as this type."""
        return read_body(kind, (await self._brokers.ask(target, code, header, body)).body)


def named(broker_name: str) -> dict[str, str]:
    """The ext field by which Java says which broker a request about a queue is meant for."""
    return {"bname": broker_name}

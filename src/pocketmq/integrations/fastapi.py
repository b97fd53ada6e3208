"""Clients that live as long as a FastAPI or Starlette application, and dependencies that hand them to its requests.

    clients = Clients(producer=lambda: AsyncProducer("127.0.0.1:9876", group="shop"))
    app = FastAPI(lifespan=clients)

    @app.post("/orders")
    async def order(what: str, producer: Annotated[AsyncProducer, clients.depends("producer")]) -> None: ...

    the application starts ──► clients start, in their order ──► requests ──► the application stops ──► they stop, in reverse

A client can be started once, so each start of the application makes new ones. In Starlette, `clients.of(request)["producer"]`
is the same.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

from pocketmq.integrations import require

require("fastapi")

from fastapi import Depends  # noqa: E402
from starlette.requests import HTTPConnection  # noqa: E402

from pocketmq.client.blocking import BlockingClient  # noqa: E402
from pocketmq.errors import UsageError, WrongState  # noqa: E402

STATE = "pocketmq"
"""The key of the clients in the state of an application."""


class AsyncClient(Protocol):
    """An async client of PocketMQ."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


Make = Callable[[], AsyncClient | BlockingClient[Any]]
Lifespan = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any] | None]]


class Clients:
    """Clients by name, each given as a function that makes it. Both kinds work: asyncio, and blocking for plain functions.

    It is the `lifespan` of an application; `around`, another lifespan of it, runs while the clients do.
    """

    def __init__(self, around: Lifespan | None = None, /, **make: Make) -> None:
        for name, function in make.items():
            if not callable(function):
                raise UsageError(
                    f"{name}={function!r} must be a function that makes a client, because a client can be started only once; "
                    f"for example {name}=lambda: AsyncProducer(…)"
                )
        self._make = make
        self._around = around

    def __call__(self, app: Any) -> AbstractAsyncContextManager[dict[str, Any]]:
        """Start the clients, and stop them at the end of the block."""
        return self._running(app)

    @asynccontextmanager
    async def _running(self, app: Any) -> AsyncIterator[dict[str, Any]]:
        async with AsyncExitStack() as ending:
            started: dict[str, Any] = {}
            for name, make in self._make.items():
                started[name] = client = make()
                if isinstance(client, BlockingClient):
                    ending.push_async_callback(asyncio.to_thread, client.stop)
                    await asyncio.to_thread(client.start)
                else:
                    ending.push_async_callback(client.stop)
                    await client.start()
            more = None if self._around is None else await ending.enter_async_context(self._around(app))
            yield {**(more or {}), STATE: started}

    def of(self, connection: HTTPConnection) -> dict[str, Any]:
        """The running clients, for a request or web socket."""
        found = getattr(connection.state, STATE, None)
        if found is None:
            raise WrongState(
                "the clients are not running: pass them as lifespan=… to the application, and in tests use `with TestClient(app):`"
            )
        return dict(found)

    def depends(self, name: str) -> Any:
        """The dependency of FastAPI for a client: `Annotated[AsyncProducer, clients.depends("producer")]`."""
        if name not in self._make:
            raise UsageError(f"there is no client {name!r}; there are {', '.join(self._make) or 'none'}")

        def client(connection: HTTPConnection) -> Any:
            return self.of(connection)[name]

        return Depends(client)

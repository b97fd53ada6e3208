"""`RocketRouter` for FastAPI: handlers of messages and of HTTP requests in one application, with FastAPI's dependencies.

router = RocketRouter("127.0.0.1:9876", group="billing")

@router.subscriber("orders")
async def bill(order: Order, session: Annotated[Session, Depends(session)]) -> None: ...

app = FastAPI()
app.include_router(router)          # starts and stops the broker, and serves /asyncapi
"""

from collections.abc import Iterable, Sequence
from typing import Any, Unpack, cast

from pocketmq.integrations import require

require("fastapi")

from fastapi import params  # noqa: E402
from fastapi.datastructures import Default  # noqa: E402
from faststream._internal.context import ContextRepo  # noqa: E402
from faststream._internal.fastapi.router import StreamRouter  # noqa: E402
from faststream._internal.types import BrokerMiddleware  # noqa: E402

from pocketmq.client.settings import ClientOptions  # noqa: E402
from pocketmq.integrations.faststream.broker import RocketBroker  # noqa: E402
from pocketmq.integrations.faststream.endpoints import RocketPublisher, RocketSubscriber  # noqa: E402

NO_MODEL = Default(None)


class RocketRouter(StreamRouter[Any]):
    """A router of FastAPI with a broker inside. `http` are further arguments of FastAPI's `APIRouter`."""

    broker_class = RocketBroker
    broker: RocketBroker

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        group: str | None = None,
        graceful_timeout: float | None = 15.0,
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        prefix: str = "",
        schema_url: str | None = "/asyncapi",
        context: ContextRepo | None = None,
        http: dict[str, Any] | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        super().__init__(
            name_servers,
            group=group,
            graceful_timeout=graceful_timeout,
            middlewares=middlewares,
            prefix=prefix,
            schema_url=schema_url,
            context=context,
            **(http or {}),
            **options,
        )

    def subscriber(  # type: ignore[override]
        self,
        topic: str,
        *,
        dependencies: Iterable[params.Depends] = (),
        response_model: Any = NO_MODEL,
        **options: Any,
    ) -> RocketSubscriber:
        """Decorator: handle the messages of `topic`. `options` are those of `RocketBroker.subscriber`."""
        made: Any = super().subscriber(
            topic,
            dependencies=dependencies,
            response_model=response_model,
            response_model_include=None,
            response_model_exclude=None,
            response_model_by_alias=True,
            response_model_exclude_unset=False,
            response_model_exclude_defaults=False,
            response_model_exclude_none=False,
            **options,
        )
        return cast("RocketSubscriber", made)

    def publisher(self, topic: str, **options: Any) -> RocketPublisher:  # type: ignore[override]
        """Decorator: publish what a handler returns. `options` are those of `RocketBroker.publisher`."""
        return self.broker.publisher(topic, **options)

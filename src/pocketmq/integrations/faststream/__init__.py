"""FastStream on RocketMQ: `RocketBroker`, with subscribers, publishers, routers, tests and middlewares as its other brokers have.

    broker = RocketBroker("127.0.0.1:9876", group="billing")

    @broker.subscriber("orders", tags="paid")
    @broker.publisher("invoices")
    async def bill(order: Order) -> Invoice: ...

    asyncio.run(FastStream(broker).run())

Modules in reading order:

    messages     a message as FastStream sees it, its acknowledgement, and the producer
    endpoints    subscribers and publishers, and the push consumer that the subscribers of a group share
    broker       RocketBroker and RocketRouter
    testing      TestRocketBroker: in memory, or with a server inside the test
    monitoring   middlewares for OpenTelemetry and Prometheus
    fastapi      RocketRouter for FastAPI; import it from there
"""

from pocketmq.integrations import require

require("faststream")

from typing import Annotated  # noqa: E402

from faststream import Context  # noqa: E402

from pocketmq.integrations.faststream.broker import (  # noqa: E402
    RocketBroker,
    RocketPublisherRoute,
    RocketRoute,
    RocketRouter,
)
from pocketmq.integrations.faststream.endpoints import RocketPublisher, RocketSubscriber  # noqa: E402
from pocketmq.integrations.faststream.messages import (  # noqa: E402
    RocketPublishCommand,
    RocketResponse,
    RocketStreamMessage,
)
from pocketmq.integrations.faststream.monitoring import (  # noqa: E402
    RocketPrometheusMiddleware,
    RocketTelemetryMiddleware,
)
from pocketmq.integrations.faststream.testing import TestRocketBroker  # noqa: E402

RocketMessage = Annotated[RocketStreamMessage, Context("message")]
"""The type of a parameter of a handler that gets the message itself."""

__all__ = [
    "RocketBroker",
    "RocketMessage",
    "RocketPrometheusMiddleware",
    "RocketPublishCommand",
    "RocketPublisher",
    "RocketPublisherRoute",
    "RocketResponse",
    "RocketRoute",
    "RocketRouter",
    "RocketStreamMessage",
    "RocketSubscriber",
    "RocketTelemetryMiddleware",
    "TestRocketBroker",
]

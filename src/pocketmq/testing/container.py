"""A broker in a container, for tests that must use the image: with testcontainers.

    with PocketMQContainer() as container:
        producer = pocketmq.Producer(container.name_server)

Clients ask the name server for the broker's address, so the broker must know the address that they reach from outside. Its port is a free
one of this machine, and has the same number inside; the port of the name server may be mapped to any other.

        this machine                     container
    name_server  49153 ───────────────►  9876
    broker       38211 ───────────────►  38211, advertised as localhost:38211
"""

import socket
from collections.abc import Sequence
from typing import Any, Final, Self

from pocketmq import __version__

try:
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.wait_strategies import LogMessageWaitStrategy
except ImportError as error:
    raise ImportError("pocketmq.testing.container needs testcontainers: pip install 'testcontainers>=4.13'") from error

IMAGE: Final = f"pocketmq:{__version__}"
NAME_SERVER_PORT: Final = 9876
READY: Final = '"event":"ready"'


class PocketMQContainer(DockerContainer):
    """A name server and a broker without accounts. `options` are those of `pocketmq serve`.

    `advertise` is the name or address under which clients reach the engine's machine; by default that of the engine.
    """

    def __init__(
        self, image: str = IMAGE, *, options: Sequence[str] = (), advertise: str | None = None, **more: Any
    ) -> None:
        super().__init__(image, **more)
        self._options = options
        self._host = advertise or self.get_docker_client().host()
        self.with_exposed_ports(NAME_SERVER_PORT)
        self.with_env("POCKETMQ_ADVERTISE", self._host)
        self.waiting_for(LogMessageWaitStrategy(READY))

    def start(self) -> Self:
        """Start the container, and wait until the broker is ready."""
        port = _free_port()
        self.with_bind_ports(port, port)
        self.with_env("POCKETMQ_HEALTH_PORT", str(port))
        required = ["serve", "--json", f"--broker-port={port}", "--open-to-the-network-without-authentication"]
        self.with_command([*required, *self._options])
        return super().start()

    @property
    def name_server(self) -> str:
        """The address for clients."""
        return f"{self._host}:{self.get_exposed_port(NAME_SERVER_PORT)}"


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port

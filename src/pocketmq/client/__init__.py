"""The client: async classes, and blocking classes with the same names and arguments.

    AsyncProducer, Producer                   send messages: single, in batches, in transactions, as requests
    AsyncPushConsumer, PushConsumer           call listeners with messages
    AsyncLitePullConsumer, LitePullConsumer   return messages from poll(), or are iterated over
    AsyncPullConsumer, PullConsumer           pull from a queue and offset of the caller's choice
    AsyncSimpleConsumer, SimpleConsumer       receive messages that brokers lease, and acknowledge each
    AsyncAdmin, Admin                         query and change the cluster
    ClientMetrics                             metrics of all of these
    Instance                                  connections, routes and heartbeats, shared by all clients of one loop

The public names load on first use: a process that needs a few modules, such as a Spark worker, imports only these.

Modules in reading order:

    settings     every option that all clients have, with RocketMQ's defaults
    hooks        callbacks before and after a send and a consumption; used by traces, metrics and users
    received     prepares received messages for users, and copies of failed ones for the retry topic
    lifecycle    the states of a client: created, running, stopped
    cluster/     connections to brokers and name servers, routes, heartbeats
    telemetry/   metrics and message traces
    producer/    producers
    consumer/    push, lite pull, pull and simple consumers
    admin/       the administrator's client
    blocking     base of all blocking clients: an async client on the loop thread
    running      runs clients as a program until SIGINT or SIGTERM
    public_names   the names that this package exports; the first use of one loads all of them
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pocketmq.client.public_names import *  # noqa: F403
    from pocketmq.client.public_names import __all__ as __all__
else:

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})

    def __getattr__(name: str) -> object:
        import pocketmq.client.public_names as public_names

        if name in ("__all__", *public_names.__all__):
            return getattr(public_names, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

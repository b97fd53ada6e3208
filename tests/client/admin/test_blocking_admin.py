"""The blocking administrator's client: the same methods."""

import asyncio

import pytest

import pocketmq
from pocketmq.client.admin import admin as blocking_admin
from pocketmq.client.admin.admin import Admin, AsyncAdmin
from pocketmq.client.admin.targets import Operations
from pocketmq.client.producer.blocking_producer import Producer
from pocketmq.errors import TopicNotFound, WrongState

PARTS = {name: type(part) for name, part in vars(AsyncAdmin()).items() if isinstance(part, Operations)}


def methods(kind: type) -> set[str]:
    return {name for name, value in vars(kind).items() if callable(value) and not name.startswith("_")}


@pytest.mark.parametrize("name", PARTS)
def test_both_admins_have_the_same_methods(name: str) -> None:
    awaited, blocking = PARTS[name], type(vars(Admin())[name])

    assert methods(blocking) == methods(awaited)
    for name in methods(blocking):
        assert getattr(blocking, name).__doc__ == getattr(awaited, name).__doc__


def test_both_admins_have_the_same_parts() -> None:
    assert {"cluster", "topics", "groups", "offsets", "messages", "dead_letters"} <= set(PARTS)
    assert blocking_admin.__doc__


def test_a_blocking_admin_queries_a_real_server() -> None:
    with pocketmq.Server() as server, Admin(server.name_server) as admin, Producer(server.name_server) as producer:
        admin.topics.create("orders", queues=2)
        result = producer.send("orders", b"1", keys="42")

        assert admin.topics.names() == ["orders"]
        assert admin.topics.describe("orders").messages == 1
        assert [message.message_id for message in admin.messages.by_key("orders", "42")] == [result.message_id]
        with pytest.raises(TopicNotFound):
            admin.topics.delete("missing")


def test_an_admin_works_only_between_start_and_stop() -> None:
    admin = Admin("127.0.0.1:1")
    with pytest.raises(WrongState, match="was not started"):
        admin.topics.names()
    with admin:
        assert admin.settings.max_calls_at_once == 32
    with pytest.raises(WrongState, match="was stopped"):
        admin.topics.names()


def test_a_blocking_admin_is_refused_inside_of_an_event_loop() -> None:
    async def main(admin: Admin) -> None:
        with pytest.raises(WrongState, match="use the async class"):
            admin.topics.names()

    with Admin("127.0.0.1:1") as admin:
        asyncio.run(main(admin))

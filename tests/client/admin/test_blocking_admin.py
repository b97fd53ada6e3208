"""The administrator's blocking face: the same words."""

import asyncio
import inspect

import pytest

import pocketmq
from pocketmq.client.admin import admin as blocking_admin
from pocketmq.client.admin.admin import Admin, AsyncAdmin
from pocketmq.client.producer.blocking_producer import Producer
from pocketmq.errors import TopicNotFound, WrongState

FAMILIES = [name for name, value in vars(AsyncAdmin).items() if isinstance(value, property) and name != "settings"]


def words(kind: type) -> set[str]:
    return {name for name, value in vars(kind).items() if callable(value) and not name.startswith("_")}


@pytest.mark.parametrize("family", FAMILIES)
def test_both_faces_have_the_same_words(family: str) -> None:
    getter = vars(Admin)[family].fget
    face = inspect.signature(getter).return_annotation
    core = inspect.signature(vars(AsyncAdmin)[family].fget).return_annotation

    assert words(face) == words(core)
    for name in words(face):
        assert getattr(face, name).__doc__ == getattr(core, name).__doc__


def test_there_are_families() -> None:
    assert {"cluster", "topics", "groups", "offsets", "messages", "dead_letters"} <= set(FAMILIES)
    assert blocking_admin.__doc__


def test_it_asks_a_real_server() -> None:
    with pocketmq.Server() as server, Admin(server.name_server) as admin, Producer(server.name_server) as producer:
        admin.topics.create("orders", queues=2)
        result = producer.send("orders", b"1", keys="42")

        assert admin.topics.names() == ["orders"]
        assert admin.topics.describe("orders").messages == 1
        assert [message.message_id for message in admin.messages.by_key("orders", "42")] == [result.message_id]
        with pytest.raises(TopicNotFound):
            admin.topics.delete("missing")


def test_it_works_between_start_and_stop_only() -> None:
    admin = Admin("127.0.0.1:1")
    with pytest.raises(WrongState, match="was not started"):
        _ = admin.topics
    with admin:
        assert admin.settings.max_calls_at_once == 32
    with pytest.raises(WrongState, match="was stopped"):
        _ = admin.topics


def test_inside_a_running_loop_it_refuses_and_says_what_to_do() -> None:
    async def main(admin: Admin) -> None:
        with pytest.raises(WrongState, match="use the async class"):
            admin.topics.names()

    with Admin("127.0.0.1:1") as admin:
        asyncio.run(main(admin))

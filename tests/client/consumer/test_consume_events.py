"""The log of a failed listener: function, group, topic, message, and the frames of the user's code."""

import logging
import os

import pytest
from tests.client.real_cluster import real_cluster, until

from pocketmq.client.consumer.consume_result import user_frames
from pocketmq.client.consumer.dispatch import _picklable
from pocketmq.model.message import StoredMessage
from pocketmq.testing import run


def look_up(price: str) -> int:
    return int(price)


async def charge(message: StoredMessage) -> None:
    look_up(message.body.decode())


def charge_at_once(message: StoredMessage) -> None:
    look_up(message.body.decode())


@pytest.mark.parametrize("namespace", [None, "shop"])
@pytest.mark.parametrize("ordered", [False, True])
def test_a_failed_listener_is_logged_with_its_function_and_the_frames_of_the_user(
    ordered: bool, namespace: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    def failures() -> list[logging.LogRecord]:
        return [record for record in caplog.records if record.getMessage().startswith("listener ")]

    async def main() -> str:
        async with real_cluster() as c:
            options = {"namespace": namespace} if namespace else {}
            c.add_topic("T" if namespace is None else "shop%T")
            consumer = c.push_consumer("billing", start_at="first", ordered=ordered, **options)
            consumer.on("T")(charge)
            async with consumer:
                async with c.producer(**options) as producer:
                    sent = await producer.send("T", b"free")
                await until(
                    lambda: len(failures()) >= 2
                )  # the second is a retry: of the same message, and of its topic
            return sent.message_id

    message_id = run(main())
    for attempt, record in enumerate(failures()[:2], 1):
        said = record.getMessage()
        assert "listener tests.client.consumer.test_consume_events.charge of group billing failed on message" in said
        assert f"message {message_id} of topic T (queue " in said, "the id that its producer saw"
        assert f"attempt {attempt})" in said
        assert record.exc_info is not None
        lines = logging.Formatter().formatException(record.exc_info)
        assert "in look_up" in lines
        assert "ValueError: invalid literal" in lines
        assert f"pocketmq{os.sep}client" not in lines


def test_a_failure_in_another_process_has_its_frames() -> None:
    try:
        charge_at_once(type("M", (), {"body": b"free"})())
    except ValueError as error:
        failed = _picklable(error)

    assert "in look_up" in "".join(failed.__notes__)


def test_an_error_of_this_client_alone_has_no_frames() -> None:
    assert user_frames(None) is None

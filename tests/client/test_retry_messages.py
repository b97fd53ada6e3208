"""Send-backs: a failed message is delivered again or becomes a dead letter, and names its original topic."""

import pytest
from tests.client.messages import stored
from tests.golden import captured, needs_golden

from pocketmq.client.consumer.retry_sender import max_reconsume_times
from pocketmq.client.received import (
    DEAD_LETTER_REASON,
    MAX_REASON_CHARS,
    dead_letter,
    original_topic,
    retry_message,
)
from pocketmq.codes import Compression, RequestCode, SysFlag
from pocketmq.model import properties as names
from pocketmq.model.delay import DELAY_LEVELS
from pocketmq.model.names import GroupName
from pocketmq.model.properties import format_properties, parse_properties
from pocketmq.model.retries import UNLIMITED, resent_is_dead
from pocketmq.protocol.compression import with_compression

GROUP = GroupName("shop")


@pytest.mark.parametrize(
    ("configured", "is_orderly", "expected"),
    [
        (None, False, 16),
        (-1, False, 16),
        (None, True, UNLIMITED),
        (-1, True, UNLIMITED),
        (0, False, 0),
        (0, True, 0),
        (3, True, 3),
    ],
)
def test_sixteen_retries_or_no_limit_in_order_by_default(
    configured: int | None, is_orderly: bool, expected: int
) -> None:
    assert max_reconsume_times(configured, is_orderly=is_orderly) == expected


def test_a_message_that_could_not_be_sent_back_is_sent_to_the_retry_topic() -> None:
    message = stored(5, b"body", times=2, properties={"UNIQ_KEY": "ID", "TAGS": "a", "mine": "1"})

    sent = retry_message(message, GROUP, 16)

    assert (sent.topic, sent.body, sent.flag) == ("%RETRY%shop", b"body", 7)
    assert (sent.reconsume_times, sent.max_reconsume_times) == (3, 16)
    assert sent.properties == {
        "UNIQ_KEY": "ID",
        "TAGS": "a",
        "mine": "1",
        "ORIGIN_MESSAGE_ID": "ID",
        "RETRY_TOPIC": "Orders",
        "DELAY": "5",
    }


@pytest.mark.parametrize(("times", "is_dead"), [(14, False), (15, False), (16, True)])
def test_the_broker_creates_a_dead_letter_after_the_last_attempt(times: int, is_dead: bool) -> None:
    sent = retry_message(stored(times=times), GROUP, 16)

    assert resent_is_dead(sent.reconsume_times, sent.max_reconsume_times, group_holds_locks=False) is is_dead


@pytest.mark.parametrize("times", [0, 3, 16])
def test_a_message_that_a_listener_gives_up_is_a_dead_letter_at_any_attempt(times: int) -> None:
    sent = dead_letter(stored(times=times, properties={"DELAY": "4"}), GROUP, "no such customer")

    assert resent_is_dead(sent.reconsume_times, sent.max_reconsume_times, group_holds_locks=False)
    assert sent.reconsume_times == times + 1
    assert sent.properties[DEAD_LETTER_REASON] == "no such customer"
    assert names.DELAY not in sent.properties


def test_a_retried_message_keeps_its_origin() -> None:
    message = stored(topic="%RETRY%shop", properties={"RETRY_TOPIC": "Orders", "ORIGIN_MESSAGE_ID": "FIRST"})

    sent = retry_message(message, GROUP, 16)

    assert original_topic(message) == "Orders"
    assert sent.properties["RETRY_TOPIC"] == "Orders"
    assert sent.properties["ORIGIN_MESSAGE_ID"] == "FIRST"


@pytest.mark.parametrize("name", ["TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TRAN_MSG"])
def test_the_history_of_a_message_is_not_repeated(name: str) -> None:
    message = stored(properties={name: "1", "KEYS": "k"})

    assert name not in retry_message(message, GROUP, 16).properties
    assert name not in dead_letter(message, GROUP).properties


def test_a_compressed_body_stays_compressed_and_other_flags_are_set_by_the_broker() -> None:
    packed = with_compression(SysFlag.TRANSACTION_COMMIT | SysFlag.STORE_HOST_V6, Compression.ZSTD)

    assert retry_message(stored(sys_flag=packed), GROUP, 16).sys_flag == with_compression(0, Compression.ZSTD)


@pytest.mark.parametrize(
    ("reason", "kept"),
    [
        ("", None),
        (" \n\x01", None),
        ("bad\x01JSON\x02at line 3\n  column 7", "bad JSON at line 3 column 7"),
        ("x" * (MAX_REASON_CHARS - 1), "x" * (MAX_REASON_CHARS - 1)),
        ("x" * MAX_REASON_CHARS, "x" * MAX_REASON_CHARS),
        ("x" * (MAX_REASON_CHARS + 1), "x" * MAX_REASON_CHARS),
    ],
)
def test_a_reason_always_fits_into_a_property(reason: str, kept: str | None) -> None:
    sent = dead_letter(stored(), GROUP, reason)

    assert sent.properties.get(DEAD_LETTER_REASON) == kept
    assert parse_properties(format_properties(sent.properties)) == sent.properties


def test_the_delay_of_a_retry_exists_for_every_default_attempt() -> None:
    levels = [int(retry_message(stored(times=times), GROUP, 16).properties["DELAY"]) for times in range(16)]

    assert levels == list(range(3, 19))
    assert levels[-1] == len(DELAY_LEVELS)


@needs_golden
def test_a_real_consumer_sends_the_same_retry_message() -> None:
    (frame,) = (
        frame
        for frame in captured("wire/5.3.3/json/orderlyDeadLetter.jsonl")
        if frame.link == "broker" and frame.forward and frame.command.code == RequestCode.SEND_MESSAGE_V2
        if (frame.command.ext or {}).get("b") == "%RETRY%CG_orderly_dlq"
    )
    ext = frame.command.ext or {}
    theirs = parse_properties(ext["i"])
    ours_alone = {"RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "RECONSUME_TIME", "MAX_RECONSUME_TIMES", "DELAY"}
    before = {name: value for name, value in theirs.items() if name not in ours_alone}

    sent = retry_message(
        stored(topic="OrderlyDeadTopic", times=1, body=frame.command.body, properties=before),
        GroupName("CG_orderly_dlq"),
        1,
    )

    assert (str(sent.reconsume_times), str(sent.max_reconsume_times)) == (ext["j"], ext["l"])
    assert sent.properties == {
        name: value for name, value in theirs.items() if name not in ("RECONSUME_TIME", "MAX_RECONSUME_TIMES")
    }

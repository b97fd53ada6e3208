"""Attributes: only supported ones, only requested changes, and every refusal has a reason."""

import pytest

from pocketmq.broker.topics import GROUP_ATTRIBUTES, TOPIC_ATTRIBUTES, altered, parse_changes
from pocketmq.errors import ImpossibleRequest


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (None, {}),
        ("", {}),
        ("+message.type=FIFO", {"+message.type": "FIFO"}),
        ("+a=1,-b", {"+a": "1", "-b": ""}),
        ("+a=x=y", {"+a": "x=y"}),
    ],
)
def test_a_text_is_parsed_as_changes(text: str | None, changes: dict[str, str]) -> None:
    assert parse_changes(text) == changes


def test_the_same_change_twice_is_refused() -> None:
    with pytest.raises(ImpossibleRequest, match="repeated"):
        parse_changes("+a=1,+a=2")


@pytest.mark.parametrize(
    ("current", "changes", "after"),
    [
        (None, {}, {}),
        (None, {"+message.type": "FIFO"}, {"message.type": "FIFO"}),
        (
            None,
            {"+queue.type": "SimpleCQ", "+cleanup.policy": "DELETE"},
            {"queue.type": "SimpleCQ", "cleanup.policy": "DELETE"},
        ),
        ({}, {"+message.type": "DELAY"}, {"message.type": "DELAY"}),
        ({"message.type": "FIFO"}, {}, {"message.type": "FIFO"}),
        ({"message.type": "FIFO"}, {"+message.type": "NORMAL"}, {"message.type": "NORMAL"}),
        ({"message.type": "FIFO", "kept": "1"}, {"-message.type": ""}, {"kept": "1"}),
    ],
)
def test_changes_are_applied_to_the_existing_attributes(
    current: dict[str, str] | None, changes: dict[str, str], after: dict[str, str]
) -> None:
    assert altered(TOPIC_ATTRIBUTES, current, changes) == after


@pytest.mark.parametrize(
    ("current", "changes", "why"),
    [
        (None, {"message.type": "FIFO"}, "must begin with"),
        (None, {"": ""}, "must begin with"),
        (None, {"+colour": "red"}, "not supported"),
        (None, {"+reserve.time": "1"}, "not supported"),
        (None, {"+message.type": "MIXED"}, "cannot be 'MIXED'"),
        (
            None,
            {"+queue.type": "BatchCQ"},
            "cannot be 'BatchCQ'; this broker supports: SimpleCQ, because each message of a batch",
        ),
        (None, {"+cleanup.policy": "COMPACTION"}, "cannot be 'COMPACTION'"),
        (None, {"-message.type": ""}, "not set"),
        ({}, {"-message.type": ""}, "not set"),
        ({}, {"+queue.type": "SimpleCQ"}, "only be set when the topic is created"),
        ({"queue.type": "SimpleCQ"}, {"-queue.type": ""}, "only be set when the topic is created"),
        ({"message.type": "FIFO"}, {"+message.type": "NORMAL", "-message.type": ""}, "both set and removed"),
        ({"message.type": "FIFO"}, {"-message.type": "", "+message.type": "NORMAL"}, "both set and removed"),
    ],
)
def test_impossible_changes_are_refused(current: dict[str, str] | None, changes: dict[str, str], why: str) -> None:
    with pytest.raises(ImpossibleRequest, match=why) as refused:
        altered(TOPIC_ATTRIBUTES, current, changes)

    assert refused.value.code == 1


def test_groups_have_no_attributes() -> None:
    with pytest.raises(ImpossibleRequest, match="known are: none"):
        altered(GROUP_ATTRIBUTES, None, {"+message.type": "FIFO"})

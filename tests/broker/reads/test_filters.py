"""Filters of reads and held pulls; captured pulls select the same messages as with Apache's broker."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden import Captured, captured, needs_golden

from pocketmq.broker.reads import filters
from pocketmq.broker.reads.filters import EVERYTHING, Filters
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import InvalidExpression
from pocketmq.model.java_hash import java_hash
from pocketmq.model.properties import format_properties, parse_properties
from pocketmq.model.subscription import ExpressionType, Subscription
from pocketmq.protocol.command import Command
from pocketmq.protocol.record import decode_records, encode_message, encode_record

HOST = bytes(8)


def record_of(raw_properties: bytes, topic: str = "T", body: bytes = b"a > 5\x02a\x019\x02") -> bytes:
    return encode_record(topic.encode(), 0, 0, 0, body, raw_properties, 0, 0, 0, HOST, 0, HOST)


def raw(**properties: str) -> bytes:
    return format_properties(properties).encode()


def sql(expression: str, topic: str = "T") -> Subscription:
    return Subscription.parse(topic, expression, ExpressionType.SQL92)


@pytest.mark.parametrize(
    "subscription",
    [
        Subscription("T"),
        Subscription("T", ""),
        Subscription("T", "*", expression_type=""),
        Subscription("T", "some.java.Class", class_filter_mode=True),
    ],
)
def test_a_subscription_to_everything_needs_no_filter(subscription: Subscription) -> None:
    wanted = Filters().of(subscription)

    assert wanted is EVERYTHING
    assert wanted.tag_codes is None
    assert wanted.matches is None
    assert wanted.wakes(java_hash("anything"), b"")


def test_tags_are_compared_with_the_queue_entry_and_wake_by_their_code() -> None:
    wanted = Filters().of(Subscription.parse("T", "TagA || Aa"))

    assert wanted.tag_codes == frozenset({java_hash("TagA"), java_hash("Aa")})
    assert wanted.matches is None
    assert wanted.wakes(java_hash("TagA"), raw(TAGS="TagA"))
    assert wanted.wakes(java_hash("BB"), raw(TAGS="BB")), "equal hashes: the client looks at the text"
    assert not wanted.wakes(java_hash("TagB"), raw(TAGS="TagB"))
    assert not wanted.wakes(0, b"")


def test_sql92_is_evaluated_on_the_record_and_wakes_by_the_properties() -> None:
    wanted = Filters().of(sql("a > 5 AND colour = 'red'"))

    assert wanted.tag_codes is None
    assert wanted.matches is not None
    for properties, expected in [
        (raw(a="6", colour="red"), True),
        (raw(colour="red", TAGS="TagA", a="6"), True),
        (raw(a="6", colour="blue"), False),
        (raw(a="six", colour="red"), False),
        (raw(colour="red"), False),
        (b"", False),
    ]:
        assert wanted.matches(record_of(properties)) is expected
        assert wanted.matches(record_of(properties, topic="T" * 200)) is expected
        assert wanted.wakes(java_hash("TagA"), properties) is expected
    assert wanted.expression is not None
    assert wanted.expression.failures == 3


def test_an_invalid_expression_is_refused_each_time_with_its_reason() -> None:
    known = Filters()

    for _ in range(3):
        with pytest.raises(InvalidExpression, match=r"line 1, column 4.*use a single =") as caught:
            known.of(sql("a == 1"))
        assert caught.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_an_unknown_type_of_expression_is_refused() -> None:
    with pytest.raises(InvalidExpression, match="'XPATH'; use TAG or SQL92"):
        Filters().of(Subscription("T", "//a", expression_type="XPATH"))


def test_the_same_expression_is_compiled_once() -> None:
    known = Filters()

    assert known.of(sql("a > 5", "T1")) is known.of(sql("a > 5", "T2"))


def test_the_least_recently_used_expression_is_removed() -> None:
    known = Filters(max_expressions=2)
    first, second = known.of(sql("a = 1")), known.of(sql("a = 2"))

    known.of(sql("a = 1"))
    known.of(sql("a = 3"))

    assert known.of(sql("a = 1")) is first
    assert known.of(sql("a = 2")) is not second


def test_the_cache_of_expressions_is_limited_by_characters() -> None:
    known = Filters(max_characters=30)
    short, long = sql("a = 1"), sql("a = 'twenty characters…'")

    kept = known.of(short)
    known.of(long)
    assert known.of(short) is kept
    known.of(long)
    known.of(sql("a = 2"))

    assert known.of(short) is not kept


def test_one_very_long_expression_does_not_replace_the_others() -> None:
    known = Filters()
    kept = known.of(sql("a = 1"))

    with pytest.raises(InvalidExpression, match="1000000 characters, more than 65536"):
        known.of(sql("a".ljust(1_000_000)))

    assert known.of(sql("a = 1")) is kept


@pytest.mark.parametrize("few_names", [0, 2, 99])
@given(
    entries=st.lists(
        st.tuples(
            st.sampled_from([b"a", b"b", b"c", b"aa", b"", b"xa", b"\xff", "é".encode()]),
            st.sampled_from([b"\x01", b"\x01", b"\x01", b""]),
            st.sampled_from([b"", b"x", b"5", b"a", b"a\x01x", b"\xff", "日本".encode()]),
        ).map(b"".join)
    ).map(b"\x02".join),
    end=st.sampled_from([b"", b"\x02", b"\x02\x02"]),
)
def test_a_record_is_filtered_like_its_parsed_properties(few_names: int, entries: bytes, end: bytes) -> None:
    properties = parse_properties((entries + end).decode("utf-8", "replace"))
    known = Filters()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filters, "FEW_NAMES", few_names)
        for expression in (
            "a = 'x'",
            "a IS NULL",
            "b = 5.0 OR a = b",
            "a = 'x' OR b = '5' OR aa = 'x'",
            "a CONTAINS '日'",
        ):
            wanted = known.of(sql(expression))
            assert wanted.matches is not None
            assert wanted.expression is not None

            expected = wanted.expression.matches(properties.get)

            assert wanted.matches(record_of(entries + end)) is expected
            assert wanted.wakes(0, entries + end) is expected


def test_a_damaged_record_is_not_hidden_by_a_filter() -> None:
    wanted = Filters().of(sql("a = 1"))

    assert wanted.matches is not None
    assert wanted.matches(b"")
    assert wanted.matches(record_of(b"")[:-10])
    assert not wanted.matches(record_of(b""))


RETRY = "%RETRY%G"


def test_a_retry_topic_returns_everything_to_a_client_without_filter() -> None:
    wanted = Filters().of_retries(Subscription(RETRY), original=lambda topic: sql("a = 1", topic))

    assert wanted is EVERYTHING


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (raw(RETRY_TOPIC="Numbers", a="1"), True),
        (raw(RETRY_TOPIC="Numbers", a="2"), False),
        (raw(RETRY_TOPIC="Numbers", a="x"), False),
        (raw(RETRY_TOPIC="Tags", a="2", TAGS="other"), True),
        (raw(RETRY_TOPIC="Broken", a="2"), True),
        (raw(RETRY_TOPIC="Forgotten", a="2"), True),
        (raw(a="2"), True),
    ],
)
def test_a_retried_message_is_filtered_by_the_subscription_of_its_own_topic(properties: bytes, expected: bool) -> None:
    subscriptions = {
        "Numbers": sql("a = 1", "Numbers"),
        "Tags": Subscription.parse("Tags", "TagA"),
        "Broken": sql("a == 1", "Broken"),
    }
    wanted = Filters().of_retries(sql("a = 99", RETRY), subscriptions.get)

    assert wanted.tag_codes is None
    assert wanted.matches is not None
    assert wanted.matches(record_of(properties, topic=RETRY)) is expected
    assert wanted.wakes(0, properties) is expected


def test_a_retry_topic_uses_the_current_subscription_of_the_group() -> None:
    subscriptions = {"Numbers": sql("a = 1", "Numbers")}
    wanted = Filters().of_retries(sql("TRUE", RETRY), subscriptions.get)
    message = raw(RETRY_TOPIC="Numbers", a="2")

    assert not wanted.wakes(0, message)
    subscriptions["Numbers"] = sql("a = 2", "Numbers")

    assert wanted.wakes(0, message)


def answered(frames: list[Captured], code: RequestCode) -> list[tuple[Command, Command]]:
    """Requests of this code with their answers; unanswered requests are omitted."""
    answers = {frame.command.opaque: frame.command for frame in frames if frame.answers == code}
    requests = [frame.command for frame in frames if frame.answers is None and frame.command.code == code]
    return [(request, answers[request.opaque]) for request in requests if request.opaque in answers]


CONVERSATIONS = ["4.9.7/json", "5.3.3/json", "5.3.3/binary"]


@needs_golden
@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_a_captured_group_gets_what_its_expression_selects(conversation: str) -> None:
    frames = captured(f"wire/{conversation}/sql.jsonl")
    sent = [request.ext or {} for request, _ in answered(frames, RequestCode.SEND_MESSAGE_V2)]
    checks = answered(frames, RequestCode.CHECK_CLIENT_CONFIG)
    expressions = [json.loads(request.body)["subscriptionData"]["subString"] for request, _ in checks]
    pulled = [answer.body for _, answer in answered(frames, RequestCode.PULL_MESSAGE) if answer.body]

    wanted = Filters().of(sql(expressions[0]))
    chosen = [at for at, fields in enumerate(sent) if wanted.wakes(0, fields["i"].encode())]

    assert len(sent) == 5
    assert expressions == ["a BETWEEN 1 AND 4 AND colour = 'red' AND TAGS IS NOT NULL", "a >>> 1"]
    assert [[message.queue_offset for message in decode_records(body)] for body in pulled] == [chosen]
    assert wanted.matches is not None
    assert all(wanted.matches(encode_message(message)) for message in decode_records(pulled[0]))


@needs_golden
@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_an_invalid_word_is_the_same_as_for_the_captured_broker(conversation: str) -> None:
    frames = captured(f"wire/{conversation}/sql.jsonl")
    request, answer = answered(frames, RequestCode.CHECK_CLIENT_CONFIG)[-1]

    with pytest.raises(InvalidExpression) as caught:
        Filters().of(sql(json.loads(request.body)["subscriptionData"]["subString"]))

    assert answer.code == caught.value.code
    assert "line 1, column 4" in (answer.remark or "")
    assert "line 1, column 4" in str(caught.value)


@needs_golden
@pytest.mark.parametrize("conversation", [*CONVERSATIONS, "4.9.7/binary"])
def test_captured_pulls_select_the_same_records(conversation: str) -> None:
    frames = captured(f"wire/{conversation}/pull.jsonl")
    pulls = [
        (request.ext or {}, answer.body)
        for request, answer in answered(frames, RequestCode.PULL_MESSAGE)
        if (request.ext or {}).get("queueOffset") == "0" and answer.code == ResponseCode.SUCCESS
    ]
    everything = next(body for fields, body in pulls if fields["subscription"] == "*")
    records = [encode_message(message) for message in decode_records(everything)]
    checked = 0

    for fields, body in pulls:
        if fields["subscription"] == "a >>> 2":
            assert body == everything, "the real broker gives all to a pull with a wrong expression"
            continue
        kind = fields.get("expressionType") or ExpressionType.TAG
        wanted = Filters().of(Subscription.parse("PullTopic", fields["subscription"], kind))
        codes, matches = wanted.tag_codes, wanted.matches
        chosen = [
            record
            for record, message in zip(records, decode_records(everything), strict=True)
            if (codes is None or java_hash(message.tags or "") in codes) and (matches is None or matches(record))
        ]
        assert b"".join(chosen[: int(fields["maxMsgNums"])]) == body
        checked += fields["subscription"] == "a > 2"
    assert len(records) == 5
    assert checked == 1

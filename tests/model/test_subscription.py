"""Subscriptions: what an expression means, and which messages match."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.errors import InvalidExpression
from pocketmq.model.java_hash import java_hash
from pocketmq.model.subscription import ALL, ExpressionType, Subscription, union_expression

TAGS = st.from_regex(r"[a-zA-Z0-9_一-龥]{1,10}", fullmatch=True)


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_no_expression_or_a_star_means_everything(expression: str | None) -> None:
    subscription = Subscription.parse("T", expression)

    assert subscription.sub_string == ALL
    assert subscription.matches_all
    assert (subscription.tags_set, subscription.code_set) == ((), ())


def test_tags_are_separated_by_two_bars_and_trimmed() -> None:
    subscription = Subscription.parse("T", " TagA ||TagB|| || TagA", sub_version=7)

    assert subscription.tags_set == ("TagA", "TagB")
    assert subscription.code_set == (2598919, 2598920)
    assert subscription.sub_string == " TagA ||TagB|| || TagA"
    assert subscription.sub_version == 7
    assert not subscription.matches_all


def test_only_characters_that_java_trims_are_trimmed() -> None:
    subscription = Subscription.parse("T", "\t\x00TagA\x1f || \u3000TagB\u00a0")

    assert subscription.tags_set == ("TagA", "\u3000TagB\u00a0")


@given(st.lists(TAGS, min_size=1, max_size=8))
def test_each_selected_tag_has_its_code(tags: list[str]) -> None:
    subscription = Subscription.parse("T", union_expression(tags))

    assert subscription.tags_set == tuple(dict.fromkeys(tags))
    assert set(subscription.code_set) == set(map(java_hash, tags))


@pytest.mark.parametrize("expression", ["||", " || ", " "])
def test_an_expression_that_names_no_tag_is_refused(expression: str) -> None:
    with pytest.raises(InvalidExpression, match="contains no tag"):
        Subscription.parse("T", expression)


def test_a_sql_expression_is_kept_as_it_is() -> None:
    subscription = Subscription.parse("T", "a > 5 AND b = 'x || y'", ExpressionType.SQL92)

    assert subscription.sub_string == "a > 5 AND b = 'x || y'"
    assert not subscription.tags_set
    assert not subscription.code_set
    assert not subscription.is_tag
    assert not subscription.matches_all


@pytest.mark.parametrize("expression", [None, ""])
def test_an_empty_sql_expression_is_refused(expression: str | None) -> None:
    with pytest.raises(InvalidExpression, match="SQL92 expression for topic T is empty"):
        Subscription.parse("T", expression, ExpressionType.SQL92)


@pytest.mark.parametrize("kind", [None, "", "TAG"])
def test_a_subscription_without_a_type_filters_by_tag(kind: str | None) -> None:
    assert Subscription.parse("T", "TagA", kind).is_tag


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (Subscription.parse("T", "a || b"), Subscription.parse("T", "b||a", sub_version=9), True),
        (Subscription.parse("T", "*"), Subscription.parse("T", ""), True),
        (Subscription.parse("T", "a"), Subscription.parse("T", "*"), False),
        (Subscription.parse("T", "a"), Subscription.parse("T", "b"), False),
        (Subscription.parse("T", "a"), Subscription.parse("U", "a"), False),
        (Subscription.parse("T", "a"), Subscription.parse("T", "a", "SQL92"), False),
        (Subscription.parse("T", "a", "SQL92"), Subscription.parse("T", "a", "SQL92", sub_version=9), True),
        (Subscription.parse("T", "a", "SQL92"), Subscription.parse("T", "b", "SQL92"), False),
    ],
)
def test_subscriptions_are_compared_without_their_version(
    one: Subscription, other: Subscription, *, same: bool
) -> None:
    assert one.same_filter(other) is same
    assert other.same_filter(one) is same


def test_a_subscription_survives_json_under_javas_names() -> None:
    subscription = Subscription.parse("T", "TagA", sub_version=3)
    text = msgspec.json.encode(subscription)

    assert msgspec.json.decode(text, type=Subscription) == subscription
    assert set(msgspec.json.decode(text)) == {
        "topic",
        "subString",
        "tagsSet",
        "codeSet",
        "subVersion",
        "expressionType",
        "classFilterMode",
    }


def test_the_union_of_no_tags_is_everything() -> None:
    assert union_expression([]) == ALL
    assert union_expression(["a", "b"]) == "a || b"

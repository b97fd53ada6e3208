"""The hints for wrong expressions."""

import pytest

from pocketmq.errors import InvalidExpression
from pocketmq.model.sql92.parser import parse


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a LIKE 'x%'", "use CONTAINS, STARTSWITH or ENDSWITH, which take plain text"),
        ("a not like 'x'", "use CONTAINS, STARTSWITH or ENDSWITH, which take plain text"),
        ("a regexp 'x'", "use CONTAINS, STARTSWITH or ENDSWITH, which take plain text"),
        ("a == 1", "use a single ="),
        ("a => 1", "use >="),
        ("a =< 1", "use <="),
        ("a != 1", "for not equal use <>, for not use NOT"),
        ("!a", "for not equal use <>, for not use NOT"),
        ('a = "x"', "put texts in single quotes: 'x'"),
        ("a = “x”", "put texts in single quotes: 'x'"),
        ("`a` = 1", "write property names without quotes"),
        ("a = 1 && b = 2", "use AND"),
        ("a = 1 || b = 2", "use OR"),
        ("a = 1;", "remove it"),
        ("a + 1 > 5", "there is no arithmetic"),
        ("a * 2 > 5", "there is no arithmetic"),
        ("a-b = 1", "there is no arithmetic, and a property name has only letters, digits, _ and $"),
        ("a.b = 1", "a property name has only letters, digits, _ and $"),
        ("größe = 1", "a property name has only letters, digits, _ and $"),
        ("a = 'x", "this text is not closed"),
        ("a = 1 /* x", "this comment is not closed"),
        ("*", "for all messages use TRUE, or the type TAG"),
        ("a BETWEN 1 AND 2", "did you mean BETWEEN?"),
        ("a CONTAIN 'x'", "did you mean CONTAINS?"),
        ("a = 1 ADN b = 2", "did you mean AND?"),
        ("a ISNULL", "use IS NULL"),
        ("a GT 5", "use >"),
        ("a IS TRUE", "use = TRUE"),
        ("a IS NOT false", "use <> FALSE"),
        ("a CONTAINS x", "write 'x'"),
        ("a IN (1, 2)", "write '1'"),
    ],
)
def test_an_error_has_the_expected_hint(text: str, hint: str) -> None:
    with pytest.raises(InvalidExpression) as caught:
        parse(text)

    assert str(caught.value).endswith(f" ({hint})")


@pytest.mark.parametrize("text", ["a = 1 garbage", "a =", "a = 1)", "a 'x'", "a " + "z" * 99, "a BETWEEN 1 OR 2"])
def test_without_a_similar_word_no_hint_is_given(text: str) -> None:
    with pytest.raises(InvalidExpression) as caught:
        parse(text)

    assert not str(caught.value).endswith(")") or "found ')'" in str(caught.value)

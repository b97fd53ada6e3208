"""From text to tree: precedence, types, and errors that say where and what."""

import pytest

from pocketmq.errors import InvalidExpression
from pocketmq.model.sql92.parser import MAX_CHARACTERS, MAX_DEPTH, MAX_TOKENS, parse
from pocketmq.model.sql92.tree import (
    AllOf,
    AnyOf,
    Equal,
    Filled,
    Minus,
    Node,
    Not,
    Number,
    NumberType,
    OneOf,
    Ordered,
    Property,
    Search,
    Text,
    Truth,
)

A, B, C = Property("a"), Property("b"), Property("c")


def whole(value: int) -> Number:
    return Number(value, NumberType.INT)


def equal(name: str, value: int) -> Equal:
    return Equal(Property(name), whole(value))


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a = 1", equal("a", 1)),
        ("a <> 1", Not(equal("a", 1))),
        ("a IS NULL", Equal(A, Truth(None))),
        ("a IS NOT NULL", Not(Equal(A, Truth(None)))),
        ("a BETWEEN 1 AND b", AllOf((Ordered(">=", A, whole(1)), Ordered("<=", A, B)))),
        ("a NOT BETWEEN 9 AND 1", AnyOf((Ordered("<", A, whole(9)), Ordered(">", A, whole(1))))),
        ("a IN ('x', 'y', 'x')", OneOf("a", frozenset("xy"), True)),
        ("(a) NOT IN ('it''s')", OneOf("a", frozenset({"it's"}), False)),
        ("a contains 'x'", Search("CONTAINS", A, "x", True)),
        ("'abc' NOT StartsWith 'x'", Search("STARTSWITH", Text("abc"), "x", False)),
        ("a ENDSWITH ''", Search("ENDSWITH", A, "", True)),
        ("a", Filled("a")),
        ("NULL", Truth(None)),
        ("true", Truth(True)),
    ],
)
def test_operators_are_parsed(text: str, tree: Node) -> None:
    assert parse(text) == tree


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a=1 OR b=2 AND c=3", AnyOf((equal("a", 1), AllOf((equal("b", 2), equal("c", 3)))))),
        ("(a=1 OR b=2) AND c=3", AllOf((AnyOf((equal("a", 1), equal("b", 2))), equal("c", 3)))),
        ("a=1 AND (b=2 AND c=3)", AllOf((equal("a", 1), equal("b", 2), equal("c", 3)))),
        ("(a=1 OR b=2) OR c=3", AnyOf((equal("a", 1), equal("b", 2), equal("c", 3)))),
        ("a = b > 1", Equal(A, Ordered(">", B, whole(1)))),
        ("a = 1 = TRUE", Equal(equal("a", 1), Truth(True))),
        ("a > 1 IS NULL", Equal(Ordered(">", A, whole(1)), Truth(None))),
        ("NOT a = 1", Equal(Not(Filled("a")), whole(1))),
        ("NOT (a = 1)", Not(equal("a", 1))),
        ("NOT NOT TRUE", Not(Not(Truth(True)))),
        ("a = 1 AND NOT b", AllOf((equal("a", 1), Not(Filled("b"))))),
        ("a BETWEEN 1 AND 2 AND b", AllOf((Ordered(">=", A, whole(1)), Ordered("<=", A, whole(2)), Filled("b")))),
        ("a CONTAINS 'x' = TRUE", Equal(Search("CONTAINS", A, "x", True), Truth(True))),
    ],
)
def test_operators_have_their_precedence(text: str, tree: Node) -> None:
    assert parse(text) == tree


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", whole(0)),
        ("2147483647", whole(2147483647)),
        ("7L", whole(7)),
        ("+7", whole(7)),
        ("-7", whole(-7)),
        ("- - 7", whole(7)),
        ("-(7)", whole(-7)),
        ("2147483648", Number(2147483648, NumberType.LONG)),
        ("-2147483648", Number(-2147483648, NumberType.LONG)),
        ("9223372036854775807l", Number(9223372036854775807, NumberType.LONG)),
        ("5.", Number(5.0, NumberType.DOUBLE)),
        ("-.5e1", Number(-5.0, NumberType.DOUBLE)),
        ("0.0", Number(0.0, NumberType.DOUBLE)),
        ("0e9", Number(0.0, NumberType.DOUBLE)),
        ("-b", Minus(B)),
        ("-'7'", Minus(Text("7"))),
        ("-TRUE", Minus(Truth(True))),
    ],
)
def test_literals_and_signs_are_parsed(text: str, number: Node) -> None:
    assert parse(f"a = {text}") == Equal(A, number)


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("", "line 1, column 1", "expected a property, a text, a number, TRUE, FALSE, NOT, - or (, found the end"),
        ("a =", "line 1, column 4", "expected a property"),
        ("a = 1 AND", "line 1, column 10", "found the end"),
        ("a >>> 1", "line 1, column 4", "found '>'"),
        ("a = 1\nAND b ==  2", "line 2, column 8", "found '='"),
        ("a = 1 b", "line 1, column 7", "expected AND, OR or the end, found b"),
        ("a b", "line 1, column 3", "expected a comparison such as = or IN, AND, OR or the end, found b"),
        ("a = 1)", "line 1, column 6", "expected AND, OR or the end, found ')'"),
        ("(a = 1", "line 1, column 7", "expected AND, OR or ), found the end"),
        ("()", "line 1, column 2", "found ')'"),
        ("a NOT 5", "line 1, column 7", "expected BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH after NOT, found 5"),
        ("a NOT > 5", "line 1, column 7", "found '>'"),
        ("a IS 5", "line 1, column 6", "expected NULL or NOT NULL, found 5"),
        ("a BETWEEN 1", "line 1, column 12", "expected AND and the upper bound of BETWEEN, found the end"),
        ("a BETWEEN 1 OR 2", "line 1, column 13", "found OR"),
        ("a IN 'x'", "line 1, column 6", "expected ( and the list of IN, found 'x'"),
        ("a IN ()", "line 1, column 7", "expected a text in single quotes, found ')'"),
        ("a IN ('x' 'y')", "line 1, column 11", "expected , or ) in the list of IN, found 'y'"),
        ("a IN ('x',)", "line 1, column 11", "expected a text in single quotes, found ')'"),
        ("a CONTAINS", "line 1, column 11", "expected a text in single quotes, found the end"),
        ("a = 'never", "line 1, column 5", 'found "\'"'),
        ("x" * 99 + " " + "y" * 99, "line 1, column 101", "found " + "y" * 37 + "..."),
    ],
)
def test_an_error_has_its_position_and_the_expected_words(text: str, where: str, what: str) -> None:
    with pytest.raises(InvalidExpression) as caught:
        parse(text)

    assert f"SQL92, {where}: " in str(caught.value)
    assert what in str(caught.value)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("5", "5 is not a condition"),
        ("'x' AND a = 1", "'x' is not a condition"),
        ("a = 1 OR -b", "'-' is not a condition"),
        ("NOT 5", "5 is not a condition"),
        ("a = NULL", "nothing equals NULL (use IS NULL or IS NOT NULL)"),
        ("NULL <> a", "nothing equals NULL"),
        ("TRUE = 5", "TRUE cannot be compared with 5"),
        ("false <> 'x'", "false cannot be compared with 'x'"),
        ("a > 'x'", "a text cannot be compared by > (use =, <> or IN)"),
        ("'x' <= a", "a text cannot be compared by <="),
        ("a BETWEEN 1 AND 'x'", "a text cannot be compared by BETWEEN"),
        ("a < TRUE", "a condition cannot be compared by < (use = or <>)"),
        ("a < NULL", "a condition cannot be compared by <"),
        ("a > 5 > 3", "a condition cannot be compared by >"),
        ("NOT a > 5", "a condition cannot be compared by > (NOT binds tighter: write NOT (a > …))"),
        ("(a = 1) NOT BETWEEN 1 AND 2", "a condition cannot be compared by BETWEEN"),
        ("a BETWEEN 5 AND 1", "nothing is between 5 and 1 (write the smaller one first)"),
        ("a BETWEEN 1 AND -5.5", "nothing is between 1 and -5.5"),
        ("-a BETWEEN 5 AND 1", "nothing is between 5 and 1"),
        ("'x' IN ('x')", "IN needs a property on its left"),
        ("-a IN ('x')", "IN needs a property on its left"),
        ("a = 007", "007 begins with 0"),
        ("a = 0L", "0L begins with 0"),
        ("a = 9223372036854775808", "9223372036854775808 has more than 64 bits"),
        ("a = " + "9" * 99, "has more than 64 bits"),
        ("a = 1e400", "1e400 is out of range"),
        ("a = 1e-400", "1e-400 is out of range"),
    ],
)
def test_invalid_operands_are_refused(text: str, what: str) -> None:
    with pytest.raises(InvalidExpression) as caught:
        parse(text)

    assert what in str(caught.value)


@pytest.mark.parametrize(
    ("fits", "too_much", "what"),
    [
        ("a".ljust(MAX_CHARACTERS), "a".ljust(MAX_CHARACTERS + 1), f"{MAX_CHARACTERS + 1} characters"),
        ("a = 1 OR " * 1023 + "a = 1", "a = 1 OR " * 1024 + "a", f"more than {MAX_TOKENS} tokens"),
        ("(" * MAX_DEPTH + "a" + ")" * MAX_DEPTH, "(" * (MAX_DEPTH + 1), f"more than {MAX_DEPTH} nested parentheses"),
        ("NOT " * (MAX_DEPTH - 1) + "a", "NOT " * MAX_DEPTH + "a", f"more than {MAX_DEPTH} nested operators"),
        ("a" + " IS NULL" * (MAX_DEPTH - 1), "a" + " IS NULL" * MAX_DEPTH, f"more than {MAX_DEPTH} nested operators"),
        (
            "a = 1 = - " + "- " * (MAX_DEPTH - 3) + "a",
            "a = " + "- " * MAX_DEPTH + "a",
            f"more than {MAX_DEPTH} nested operators",
        ),
    ],
)
def test_length_tokens_and_depth_have_limits(fits: str, too_much: str, what: str) -> None:
    parse(fits)

    with pytest.raises(InvalidExpression, match=what):
        parse(too_much)


def test_a_thousand_ors_are_one_row() -> None:
    tree = parse(" OR ".join(f"a = {n}" for n in range(1000)))

    assert isinstance(tree, AnyOf)
    assert len(tree.terms) == 1000

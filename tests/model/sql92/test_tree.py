"""The tree of an expression of any depth can be iterated."""

from pocketmq.model.sql92.tree import (
    AllOf,
    AnyOf,
    Condition,
    Equal,
    Filled,
    Minus,
    Not,
    Number,
    NumberType,
    OneOf,
    Ordered,
    Property,
    Search,
    Text,
    Truth,
    nodes_with_depth,
)

FIVE = Number(5, NumberType.INT)


def test_every_node_is_visited_with_its_depth() -> None:
    ordered = Ordered(">", Property("a"), Minus(Property("b")))
    equal = Equal(Property("c"), Truth(None))
    search = Search("CONTAINS", Text("x"), "y", True)
    listed = OneOf("d", frozenset("x"), False)
    tree = AllOf((AnyOf((ordered, Not(equal))), search, listed, Filled("e")))

    visited = list(nodes_with_depth(tree))

    assert len(visited) == 14
    assert {(type(node).__name__, depth) for node, depth in visited} == {
        ("AllOf", 1),
        ("AnyOf", 2),
        ("Search", 2),
        ("OneOf", 2),
        ("Filled", 2),
        ("Ordered", 3),
        ("Not", 3),
        ("Text", 3),
        ("Property", 4),
        ("Minus", 4),
        ("Equal", 4),
        ("Property", 5),
        ("Truth", 5),
    }


def test_a_tree_far_deeper_than_the_stack_can_be_traversed() -> None:
    tree: Condition = Equal(Property("a"), FIVE)
    for _ in range(50_000):
        tree = Not(tree)

    assert max(depth for _, depth in nodes_with_depth(tree)) == 50_002

"""The table of bodies, and every type in it: any value survives every spelling."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect
from tests.protocol.bodies.forms import BODIES, FILES, NOT_SERVED, BodyForm, BodyKind

from pocketmq.codes import RequestCode
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.bodies.clients import LockedQueues
from pocketmq.protocol.bodies.topics import CppResetOffsets, TopicConfig, TopicTable
from pocketmq.protocol.java_json import Body, write_pretty_json

FORMS = [form for forms in BODIES.values() for form in forms if form]
TYPES = list(dict.fromkeys([*(form.type for form in FORMS if form.type), *FILES.values(), CppResetOffsets]))


def values(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Any value of this type."""
    match kind:
        case inspect.StructType():
            fields = {field.name: values(field.type) for field in kind.fields}
            return st.builds(kind.cls, **fields)
        case inspect.DictType():
            return st.dictionaries(values(kind.key_type), values(kind.value_type), max_size=3)
        case inspect.CollectionType():
            return st.lists(values(kind.item_type), max_size=3).map(tuple)
        case inspect.UnionType():
            return st.one_of([values(one) for one in kind.types])
        case inspect.EnumType():
            return st.sampled_from(kind.cls)
        case inspect.IntType():
            return st.integers(-(2**63) if kind.ge is None else kind.ge, 2**63 - 1 if kind.le is None else kind.le)
        case inspect.CustomType():
            raise AssertionError(f"no strategy for {kind}")
    return PLAIN[type(kind)]


PLAIN: dict[type[inspect.Type], st.SearchStrategy[Any]] = {
    inspect.StrType: st.text(max_size=8),
    inspect.BoolType: st.booleans(),
    inspect.FloatType: st.floats(allow_nan=False, allow_infinity=False),
    inspect.BytesType: st.binary(max_size=4),
    inspect.NoneType: st.none(),
}


def test_every_request_that_is_served_has_its_row() -> None:
    assert BODIES.keys() | NOT_SERVED == set(RequestCode)


@pytest.mark.parametrize("form", FORMS)
def test_exactly_the_json_bodies_have_a_type(form: BodyForm) -> None:
    assert (form.type is not None) == (form.kind is BodyKind.JSON)


def test_all_body_types_are_listed() -> None:
    assert len(TYPES) > 40


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: getattr(kind, "__name__", str(kind)))
def test_any_body_is_preserved_in_every_form(kind: Any) -> None:
    @settings(max_examples=8)
    @given(values(inspect.type_info(kind)))
    def survives(body: Any) -> None:
        assert kind.decode(body.encode()) == body
        assert kind.decode(body.encode(strict=True)) == body
        assert kind.decode(write_pretty_json(body)) == body

    survives()


@pytest.mark.parametrize("kind", [kind for kind in TYPES if isinstance(kind, type) and issubclass(kind, Body)])
def test_an_empty_body_has_the_default_values(kind: type[Body]) -> None:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    if not any(field.required for field in info.fields):
        assert kind.decode(b"{}") == kind()


def test_bodies_do_not_share_tables() -> None:
    first, second = TopicTable(), TopicTable()

    first.topic_config_table["T"] = TopicConfig("T")

    assert second.topic_config_table == {}
    with pytest.raises(AttributeError):
        first.topic_config_table = {}  # type: ignore[misc]


def test_queues_in_bodies_are_the_queues_of_the_model() -> None:
    read = LockedQueues.decode(b'{"lockOKMQSet":[{"topic":"T","brokerName":"b","queueId":1}]}')

    assert read.locked == (MessageQueue("T", "b", 1),)

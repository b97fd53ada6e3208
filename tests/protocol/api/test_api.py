"""Each header has the fields that the protocol's own tables have."""

import pytest
from tests.protocol.request_tables import (
    BROKER_REQUESTS,
    CLIENT_REQUESTS,
    NAME_SERVER_REQUESTS,
    REPLIES,
    RESPONSES,
    rows,
)

from pocketmq.codes import RequestCode
from pocketmq.protocol.api import REQUESTS, request_header
from pocketmq.protocol.api.administration import Zone
from pocketmq.protocol.api.messages import QueryConsumerOffset
from pocketmq.protocol.fields import Fields

OURS = {RequestCode.REGISTER_BROKER: {"topicsRejected"}}
"""Fields beyond RocketMQ's, which its own programs pass over."""


def described(header: type[Fields]) -> set[str]:
    """Wire names of a header, with `!` behind those that are mandatory."""
    names = header.__struct_encode_fields__
    optional = len(header.__struct_defaults__)
    mandatory = len(names) - optional
    return {f"{name}!" for name in names[:mandatory]} | set(names[mandatory:])


def test_every_header_belongs_to_a_listed_request() -> None:
    known = rows(NAME_SERVER_REQUESTS) | rows(CLIENT_REQUESTS) | rows(BROKER_REQUESTS)

    assert set(REQUESTS) == {code for code, names in known.items() if names}


@pytest.mark.parametrize("table", [NAME_SERVER_REQUESTS, CLIENT_REQUESTS, BROKER_REQUESTS])
def test_request_headers_have_the_fields_of_the_protocol(table: str) -> None:
    for code, names in rows(table).items():
        assert described(request_header(code)) == names, code


def test_response_headers_have_the_fields_of_the_protocol() -> None:
    expected = rows(RESPONSES)

    assert REPLIES.keys() == expected.keys()
    for code, names in expected.items():
        assert described(REPLIES[code]) == names | OURS.get(code, set()), code


def test_no_header_has_a_duplicate_wire_name() -> None:
    for header in (*REQUESTS.values(), *REPLIES.values()):
        names = header.__struct_encode_fields__
        assert len(set(names)) == len(names), header


def test_the_zone_is_read_from_the_fields_of_any_request() -> None:
    ext = {"consumerGroup": "CG", "topic": "T", "queueId": "0", "__ZONE_NAME": "z", "__ZONE_MODE": "true"}

    assert QueryConsumerOffset.decode(ext) == QueryConsumerOffset("CG", "T", 0)
    assert Zone.decode(ext) == Zone("z", "true")
    assert Zone.decode(None) == Zone()

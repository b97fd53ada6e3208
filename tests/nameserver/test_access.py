"""One row for every code that a name server serves, and none too many."""

import pytest

from pocketmq.codes import RequestCode
from pocketmq.model.access import Access, Action, Resource
from pocketmq.nameserver.access import ACCESS
from pocketmq.protocol.api import API, Server

SERVED = {code for code, row in API.items() if Server.NAME_SERVER in row.served_by}
CHANGING_WORDS = ("REGISTER", "UPDATE", "DELETE", "PUT", "WIPE", "ADD", "HEARTBEAT")


def test_every_request_to_a_name_server_has_a_row_and_no_other_has() -> None:
    assert set(ACCESS) == SERVED
    assert len(SERVED) == 23


@pytest.mark.parametrize("code", ACCESS, ids=lambda code: code.name)
def test_the_field_that_names_the_resource_exists(code: RequestCode) -> None:
    named_by = ACCESS[code].named_by

    assert named_by is None or named_by in API[code].request.__struct_fields__


@pytest.mark.parametrize("code", ACCESS, ids=lambda code: code.name)
def test_what_changes_something_is_no_mere_reading(code: RequestCode) -> None:
    changes = any(word in code.name for word in CHANGING_WORDS)
    reads = ACCESS[code].action in (Action.GET, Action.LIST)

    assert changes != reads or code is RequestCode.QUERY_DATA_VERSION


def test_the_question_for_a_data_version_keeps_a_broker_alive_so_it_is_no_mere_reading() -> None:
    assert ACCESS[RequestCode.QUERY_DATA_VERSION] == Access(Resource.CLUSTER, Action.UPDATE, "cluster_name")

"""Searching an offset by time: which end of equal times is asked for."""

import pytest

from pocketmq.codes import BoundaryType
from pocketmq.protocol.api.offsets import SearchOffset
from pocketmq.protocol.fields import read_fields

ASKED = {"topic": "T", "queueId": "0", "timestamp": "5"}


@pytest.mark.parametrize(
    ("text", "boundary"),
    [
        ("LOWER", BoundaryType.LOWER),
        ("UPPER", BoundaryType.UPPER),
        ("upper", BoundaryType.UPPER),
        ("lower", BoundaryType.LOWER),
        ("sideways", BoundaryType.LOWER),
    ],
)
def test_a_boundary_is_read_in_any_case_and_lower_when_unknown(text: str, boundary: BoundaryType) -> None:
    assert read_fields(SearchOffset, ASKED | {"boundaryType": text}).boundary_type is boundary


def test_no_boundary_is_told_as_none() -> None:
    assert read_fields(SearchOffset, ASKED).boundary_type is None

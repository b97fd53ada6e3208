"""The comparison of manifests with schemas, as `make chart` uses it."""

from typing import Any

import pytest
from release.schemas import compare

KNOWN: dict[str, Any] = {
    "Pod": {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string"},
            "ports": {"type": "array", "items": {"allOf": [{"$ref": "#/components/schemas/Port"}], "default": {}}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "mode": {"type": "string", "enum": ["on", "off"]},
        },
    },
    "Port": {"oneOf": [{"type": "integer"}, {"type": "string"}]},
}


@pytest.mark.parametrize(
    ("manifest", "faults"),
    [
        ({"name": "a", "ports": [1, "http"], "labels": {"x": "y"}, "mode": "on"}, []),
        ({"name": "a", "nmae": "b"}, ["Pod: there is no nmae"]),
        ({}, ["Pod: name is missing"]),
        ({"name": 5}, ["Pod.name: 5 is not of type string"]),
        ({"name": "a", "ports": [True]}, ["Pod.ports[0]: True is of no allowed type"]),
        ({"name": "a", "labels": {"x": 1}}, ["Pod.labels.x: 1 is not of type string"]),
        ({"name": "a", "mode": "maybe"}, ["Pod.mode: 'maybe' is none of ['on', 'off']"]),
        ({"name": "a", "ports": {}}, ["Pod.ports: {} is not of type array"]),
    ],
)
def test_every_fault_of_a_manifest_is_named(manifest: dict[str, Any], faults: list[str]) -> None:
    assert list(compare(manifest, {"$ref": "#/components/schemas/Pod"}, KNOWN, "Pod")) == faults

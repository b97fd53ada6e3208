"""Compares manifests with the schemas of Kubernetes, without a cluster.

The module kubectl-validate of Go's proxy has the schemas of each version as files; only these files are used. A key that the schema does
not have is a fault, too: a cluster would ignore it.
"""

import json
import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from release.programs import Failed, run

MODULE: Final = "sigs.k8s.io/kubectl-validate@v0.0.4"
FOLDER: Final = "pkg/openapiclient/builtins"
VERSION: Final = "1.30"
TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


@cache
def schema_folder() -> Path:
    environ = os.environ | {"GOFLAGS": "-mod=mod"}
    found = json.loads(run(["go", "mod", "download", "-json", MODULE], folder=Path("/"), environ=environ))
    return Path(found["Dir"], FOLDER, VERSION)


@cache
def components(group: str) -> dict[str, Any]:
    """The schemas of a group and version, such as apps/v1."""
    place = "apis" if "/" in group else "api"
    file = schema_folder() / place / f"{group}.json"
    if not file.exists():
        raise Failed(f"Kubernetes {VERSION} has no {group}")
    found: dict[str, Any] = json.loads(file.read_text("utf-8"))["components"]["schemas"]
    return found


def check_manifests(text: str) -> int:
    """How many manifests there are; Failed with all their faults."""
    manifests = [manifest for manifest in yaml.safe_load_all(text) if manifest]
    faults = [fault for manifest in manifests for fault in faults_of(manifest)]
    if faults:
        raise Failed("\n".join(faults))
    return len(manifests)


def faults_of(manifest: dict[str, Any]) -> list[str]:
    group, kind = manifest["apiVersion"], manifest["kind"]
    group_name, _, version = group.rpartition("/")
    for schema in components(group).values():
        for one in schema.get("x-kubernetes-group-version-kind", ()):
            if (one["group"].partition(".")[0], one["version"], one["kind"]) == (
                group_name.partition(".")[0],
                version,
                kind,
            ):
                return list(compare(manifest, schema, components(group), f"{kind} {manifest['metadata']['name']}"))
    raise Failed(f"{group} has no {kind}")


def compare(value: Any, schema: dict[str, Any], known: Mapping[str, Any], path: str) -> Iterator[str]:
    """The faults of a value."""
    if "$ref" in schema:
        yield from compare(value, known[schema["$ref"].rpartition("/")[2]], known, path)
        return
    for part in schema.get("allOf", ()):
        yield from compare(value, part, known, path)
    if choices := schema.get("oneOf"):
        if all(list(compare(value, choice, known, path)) for choice in choices):
            yield f"{path}: {value!r} is of no allowed type"
        return
    kind = schema.get("type")
    if kind is not None and (not isinstance(value, TYPES[kind]) or (kind != "boolean" and isinstance(value, bool))):
        yield f"{path}: {value!r} is not of type {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from compare(item, schema.get("items", {}), known, f"{path}[{number}]")
    elif isinstance(value, dict):
        yield from _compare_object(value, schema, known, path)


def _compare_object(
    value: dict[str, Any], schema: dict[str, Any], known: Mapping[str, Any], path: str
) -> Iterator[str]:
    properties, others = schema.get("properties"), schema.get("additionalProperties")
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}: {name} is missing"
    for name, item in value.items():
        if properties is not None and name in properties:
            yield from compare(item, properties[name], known, f"{path}.{name}")
        elif isinstance(others, dict):
            yield from compare(item, others, known, f"{path}.{name}")
        elif properties is not None:
            yield f"{path}: there is no {name}"

"""deploy/helm, as far as it can be checked without helm. `make chart` lints, renders and validates it."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

import pocketmq

FOLDER = Path(__file__).parents[2] / "deploy" / "helm"
VALUES: dict[str, Any] = yaml.safe_load((FOLDER / "values.yaml").read_text("utf-8"))
SCHEMA: dict[str, Any] = json.loads((FOLDER / "values.schema.json").read_text("utf-8"))


def objects(schema: dict[str, Any], path: str = "") -> dict[str, dict[str, Any]]:
    """Every object of the schema that names its properties, by its path."""
    found = {path: schema} if "properties" in schema else {}
    for name, part in schema.get("properties", {}).items():
        found |= objects(part, f"{path}.{name}".removeprefix("."))
    return found


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((FOLDER / "Chart.yaml").read_text("utf-8"))

    assert chart["appVersion"] == pocketmq.__version__


def test_unknown_values_are_rejected_everywhere() -> None:
    assert [path for path, schema in objects(SCHEMA).items() if schema["additionalProperties"] is not False] == []


def test_the_schema_has_the_values_and_no_others() -> None:
    for path, schema in objects(SCHEMA).items():
        values = VALUES
        for name in filter(None, path.split(".")):
            values = values[name]
        if values:
            assert set(values) == set(schema["properties"]) - {"global"}, path


def test_every_value_is_used_by_a_template() -> None:
    text = "".join(path.read_text("utf-8") for path in sorted((FOLDER / "templates").iterdir()))
    used = set(re.findall(r"\.Values\.([\w.]+)", text))

    for path, schema in objects(SCHEMA).items():
        for name in set(schema["properties"]) - {"global"}:
            full = f"{path}.{name}".removeprefix(".")
            assert any(one == full or full.startswith(f"{one}.") or one.startswith(f"{full}.") for one in used), full

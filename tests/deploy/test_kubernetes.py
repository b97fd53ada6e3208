"""The manifests for Kubernetes: valid YAML, with references that exist and options that PocketMQ has."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from pocketmq.cli import main
from pocketmq.files import DiskFiles
from pocketmq.pipelines import JOBS, read_job

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
MANIFESTS = sorted(FOLDER.glob("*.yaml"))


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text("utf-8")))


def pod_specs(found: Any) -> Iterator[dict[str, Any]]:
    """Every specification of a pod, anywhere in the documents."""
    if isinstance(found, dict):
        if "containers" in found:
            yield found
        for part in found.values():
            yield from pod_specs(part)
    elif isinstance(found, list):
        for part in found:
            yield from pod_specs(part)


def containers(path: Path) -> list[dict[str, Any]]:
    specs = [spec for document in documents(path) for spec in pod_specs(document)]
    return [one for spec in specs for one in [*spec.get("initContainers", []), *spec["containers"]]]


def test_the_manifests_exist() -> None:
    assert [path.name for path in MANIFESTS] == ["archive.yaml", "pocketmq.yaml"]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_each_document_has_kind_and_name(path: Path) -> None:
    for document in documents(path):
        assert {"apiVersion", "kind", "metadata"} <= document.keys()
        assert re.fullmatch(r"[a-z0-9-]+", document["metadata"]["name"])


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_images_are_plain_and_mounts_are_volumes_of_the_pod(path: Path) -> None:
    assert {one["image"] for one in containers(path)} == {"python:3.13-slim"}
    for document in documents(path):
        claims = document.get("spec", {}).get("volumeClaimTemplates", [])
        for spec in pod_specs(document):
            volumes = {one["name"] for one in spec["volumes"]} | {one["metadata"]["name"] for one in claims}
            mounts = [
                mount for one in [*spec.get("initContainers", []), *spec["containers"]] for mount in one["volumeMounts"]
            ]
            assert {mount["name"] for mount in mounts} <= volumes


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_commands_and_their_flags_exist(path: Path) -> None:
    for one in containers(path):
        if one["command"][:3] != ["python", "-m", "pocketmq"]:
            continue
        words = [*one["command"][3:], *one.get("args", [])]
        command: click.Command = main
        context = click.Context(main)
        while isinstance(command, click.Group):
            found = command.get_command(context, words.pop(0))
            assert found is not None
            command = found
        known = {name for parameter in command.params for name in parameter.opts}
        assert {word.partition("=")[0] for word in words} <= known


def test_the_settings_of_the_archive_are_understood(tmp_path: Path) -> None:
    (settings,) = [one["data"] for one in documents(FOLDER / "archive.yaml") if one["kind"] == "ConfigMap"]
    file = tmp_path / "archive.toml"
    file.write_text(settings["archive.toml"])

    told = read_job("archive", JOBS["archive"].settings, path=file, flags={}, files=DiskFiles(), now_ms=0)

    assert told.topics == ["orders"]

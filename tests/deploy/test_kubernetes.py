"""The manifests for Kubernetes, which `make chart` writes: references that exist, options that PocketMQ has, restricted pods."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.deploy.options import unknown_options

import pocketmq
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
def test_mounts_are_volumes_of_the_pod(path: Path) -> None:
    for document in documents(path):
        claims = document.get("spec", {}).get("volumeClaimTemplates", [])
        for spec in pod_specs(document):
            volumes = {one["name"] for one in spec["volumes"]} | {one["metadata"]["name"] for one in claims}
            mounts = [mount for one in spec["containers"] for mount in one["volumeMounts"]]
            assert {mount["name"] for mount in mounts} <= volumes


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_images_are_those_of_this_version_and_nothing_is_installed_at_the_start(path: Path) -> None:
    assert {one["image"] for one in containers(path)} <= {
        f"pocketmq:{pocketmq.__version__}",
        f"pocketmq-spark:{pocketmq.__version__}",
    }
    assert [
        spec["initContainers"]
        for document in documents(path)
        for spec in pod_specs(document)
        if "initContainers" in spec
    ] == []
    assert [one for one in containers(path) if "pip" in one["args"]] == []


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_pods_have_the_rights_of_an_ordinary_user(path: Path) -> None:
    for document in documents(path):
        for spec in pod_specs(document):
            assert spec["securityContext"]["runAsNonRoot"] is True
            assert spec["automountServiceAccountToken"] is False
    for one in containers(path):
        assert one["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_commands_and_their_options_exist(path: Path) -> None:
    for one in containers(path):
        assert "command" not in one, "the image starts pocketmq"
        assert unknown_options(one["args"]) == set()


def test_the_settings_of_the_archive_are_understood(tmp_path: Path) -> None:
    (settings,) = [one["data"] for one in documents(FOLDER / "archive.yaml") if one["kind"] == "ConfigMap"]
    file = tmp_path / "archive.toml"
    file.write_text(settings["archive.toml"])

    told = read_job("archive", JOBS["archive"].settings, path=file, flags={}, files=DiskFiles(), now_ms=0)

    assert told.topics == ["orders"]

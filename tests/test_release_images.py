"""Image files. `make image` builds and starts a whole one."""

import io
import json
import os
import tarfile
from pathlib import Path

import pytest
from release import oci
from release.image import KINDS, USER, settings


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "data").mkdir(parents=True)
    (root / "usr" / "bin").mkdir(parents=True)
    (root / "usr" / "bin" / "program").write_text("#!/bin/true\n")
    (root / "usr" / "bin" / "program").chmod(0o755)
    (root / "usr" / "bin" / "link").symlink_to("program")
    return root


def written(tree: Path, target: Path) -> Path:
    layer = oci.make_layer(tree, oci.names_below(tree), 1_700_000_000, {"data": oci.Owner(USER, USER)})
    oci.write_image(target, "pocketmq:1", [layer], settings(KINDS["broker"]), "amd64", "2026-01-01T00:00:00Z")
    return target


@pytest.mark.skipif(os.geteuid() != 0, reason="only the administrator may give files away")
def test_an_image_is_read_as_it_was_written(tree: Path, tmp_path: Path) -> None:
    found = oci.read_image(written(tree, tmp_path / "image.tar"), tmp_path / "root")

    program = tmp_path / "root" / "usr" / "bin" / "program"
    assert found == settings(KINDS["broker"])
    assert oci.names_below(tmp_path / "root") == oci.names_below(tree)
    assert program.read_text() == "#!/bin/true\n"
    assert program.stat().st_mode & 0o777 == 0o755
    assert program.stat().st_mtime == 1_700_000_000
    assert (tmp_path / "root" / "usr" / "bin" / "link").readlink() == Path("program")
    assert (tmp_path / "root" / "data").stat().st_uid == USER


def test_the_same_tree_gives_the_same_bytes(tree: Path, tmp_path: Path) -> None:
    first = written(tree, tmp_path / "one.tar").read_bytes()
    os.utime(tree / "usr" / "bin" / "program", (1, 1))

    assert written(tree, tmp_path / "two.tar").read_bytes() == first


def test_engines_of_both_kinds_find_the_parts(tree: Path, tmp_path: Path) -> None:
    with tarfile.open(written(tree, tmp_path / "image.tar")) as tar:
        names = set(tar.getnames())
        [docker] = json.load(tar.extractfile("manifest.json") or io.BytesIO())
        index = json.load(tar.extractfile("index.json") or io.BytesIO())

    assert {docker["Config"], *docker["Layers"]} <= names
    assert docker["RepoTags"] == ["pocketmq:1"]
    assert index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"] == "pocketmq:1"


def test_a_changed_layer_is_refused(tree: Path, tmp_path: Path) -> None:
    image = written(tree, tmp_path / "image.tar")
    data = bytearray(image.read_bytes())
    with tarfile.open(image) as tar:
        largest = max(tar.getmembers(), key=lambda member: member.size)
    data[largest.offset_data + 20] ^= 1
    image.write_bytes(data)

    with pytest.raises(ValueError, match="does not match"):
        oci.read_image(image, tmp_path / "root")


def test_the_image_runs_as_an_ordinary_user_and_stops_by_sigterm() -> None:
    for kind in KINDS.values():
        told = settings(kind)
        assert told["User"] == f"{USER}:{USER}"
        assert told["StopSignal"] == "SIGTERM"
        assert told["Volumes"] == {"/data": {}}
        assert "POCKETMQ_HOST=0.0.0.0" in told["Env"]

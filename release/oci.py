"""An image as a file: layers, configuration and index, in the layout of OCI, which podman and others load.

    index.json ─► manifest ─┬─► configuration: user, environment, command, health check
    manifest.json ──────────┘└► layers: tar archives, each compressed

`manifest.json` names the same files for older versions of Docker. Entries are sorted and carry one time, so the same tree gives the
same bytes.
"""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

LAYOUT: Final = {"imageLayoutVersion": "1.0.0"}
INDEX: Final = "application/vnd.oci.image.index.v1+json"
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
CONFIGURATION: Final = "application/vnd.oci.image.config.v1+json"
LAYER: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
LEVEL: Final = 9


class Layer(NamedTuple):
    compressed: bytes
    content: str
    """The digest of the archive before it was compressed."""


class Owner(NamedTuple):
    user: int = 0
    group: int = 0


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def names_below(root: Path) -> set[str]:
    """Every path below a folder, relative to it."""
    return {path.relative_to(root).as_posix() for path in root.rglob("*")}


def make_layer(root: Path, names: Iterable[str], made_s: int, owners: Mapping[str, Owner]) -> Layer:
    """A layer with these paths of a tree. All but `owners` belong to root."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(names):
            entry = tar.gettarinfo(str(root / name), arcname=name)
            entry.uid, entry.gid = owners.get(name, Owner())
            entry.uname = entry.gname = ""
            entry.mtime = made_s
            if entry.isreg():
                with (root / name).open("rb") as content:
                    tar.addfile(entry, content)
            else:
                tar.addfile(entry)
    data = archive.getvalue()
    return Layer(gzip.compress(data, LEVEL, mtime=0), digest(data))


def write_image(
    target: Path, name: str, layers: Sequence[Layer], settings: Mapping[str, Any], machine: str, made: str
) -> None:
    """Write the image `name`, as in `pocketmq:0.1.0`, to a file."""
    blobs: dict[str, bytes] = {}

    def keep(data: bytes, kind: str) -> dict[str, Any]:
        blobs[digest(data)] = data
        return {"mediaType": kind, "digest": digest(data), "size": len(data)}

    configuration = {
        "created": made,
        "architecture": machine,
        "os": "linux",
        "config": settings,
        "rootfs": {"type": "layers", "diff_ids": [layer.content for layer in layers]},
        "history": [{"created": made, "created_by": "make image"} for _ in layers],
    }
    kept = [keep(layer.compressed, LAYER) for layer in layers]
    described = keep(_json(configuration), CONFIGURATION)
    manifest = keep(_json({"schemaVersion": 2, "mediaType": MANIFEST, "config": described, "layers": kept}), MANIFEST)
    manifest["annotations"] = {"org.opencontainers.image.ref.name": name, "io.containerd.image.name": name}
    files = {_place(key): data for key, data in blobs.items()}
    files["oci-layout"] = _json(LAYOUT)
    files["index.json"] = _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [manifest]})
    files["manifest.json"] = _json(
        [
            {
                "Config": _place(described["digest"]),
                "RepoTags": [name],
                "Layers": [_place(layer["digest"]) for layer in kept],
            }
        ]
    )
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(files):
            entry = tarfile.TarInfo(path)
            entry.size = len(files[path])
            entry.mode = 0o644
            tar.addfile(entry, io.BytesIO(files[path]))


def read_image(image: Path, root: Path) -> dict[str, Any]:
    """Unpack the layers of an image into a folder, as an engine does. Returns its settings."""
    with tarfile.open(image) as tar:

        def blob(key: str) -> bytes:
            found = tar.extractfile(_place(key))
            assert found is not None
            data = found.read()
            if digest(data) != key:
                raise ValueError(f"{key} does not match its content")
            return data

        index = json.loads(_read(tar, "index.json"))
        manifest = json.loads(blob(index["manifests"][0]["digest"]))
        described = json.loads(blob(manifest["config"]["digest"]))
        for layer, content in zip(manifest["layers"], described["rootfs"]["diff_ids"], strict=True):
            data = gzip.decompress(blob(layer["digest"]))
            if digest(data) != content:
                raise ValueError(f"the layer {layer['digest']} does not match its configuration")
            with tarfile.open(fileobj=io.BytesIO(data)) as files:
                files.extractall(root, numeric_owner=True, filter="fully_trusted")
    settings: dict[str, Any] = described["config"]
    return settings


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    found = tar.extractfile(name)
    assert found is not None
    return found.read()


def _place(key: str) -> str:
    kind, _, value = key.partition(":")
    return f"blobs/{kind}/{value}"


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

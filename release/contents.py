"""The bill of materials (SBOM, CycloneDX) and the checksums of a folder of wheels.

The wheels hold code of PocketMQ only. The bill lists them with their checksums, and the libraries that an installation draws.
"""

import hashlib
import importlib.metadata
import json
import sys
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement

SUMS: Final = "SHA256SUMS"
SPECIFICATION: Final = "1.6"
BUILDERS: Final = ("hatchling", "ziglang")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_checksums(folder: Path, files: Sequence[Path]) -> Path:
    """In the form of `sha256sum --check`."""
    target = folder / SUMS
    target.write_text("".join(f"{sha256(path)}  {path.name}\n" for path in sorted(files)), "utf-8")
    return target


def bill_of_materials(
    version: str, files: Sequence[Path], requirements: Sequence[str], made_s: int, builders: Sequence[str] = BUILDERS
) -> dict[str, Any]:
    """The same for the same files, so that it can be compared, too."""
    sums = {path.name: sha256(path) for path in sorted(files)}
    name = f"pkg:pypi/pocketmq@{version}"
    libraries = [_library(Requirement(text)) for text in requirements]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, name + json.dumps(sums)).urn,
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(made_s, UTC).isoformat().replace("+00:00", "Z"),
            "tools": {"components": [_builder(builder) for builder in builders]},
            "properties": [{"name": "python", "value": ".".join(map(str, sys.version_info[:3]))}],
            "component": {
                "type": "library",
                "bom-ref": name,
                "name": "pocketmq",
                "version": version,
                "purl": name,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
        },
        "components": [
            *({"type": "file", "name": file, "hashes": [{"alg": "SHA-256", "content": sums[file]}]} for file in sums),
            *libraries,
        ],
        "dependencies": [
            {"ref": name, "dependsOn": [one["bom-ref"] for one in libraries if one["scope"] == "required"]},
            *({"ref": one["bom-ref"]} for one in libraries),
        ],
    }


def _library(requirement: Requirement) -> dict[str, Any]:
    name = f"pkg:pypi/{requirement.name.lower()}"
    return {
        "type": "library",
        "bom-ref": name,
        "name": requirement.name,
        "purl": name,
        "scope": "optional" if requirement.marker else "required",
        "properties": [{"name": "versions", "value": str(requirement.specifier)}],
    }


def _builder(name: str) -> dict[str, str]:
    return {"type": "application", "name": name, "version": importlib.metadata.version(name)}

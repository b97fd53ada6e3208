"""A framework that is missing, or has another version, is reported in one sentence."""

import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import pytest

import pocketmq.integrations as integrations
from pocketmq.errors import MissingLibrary


def test_a_version_out_of_range_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    for version, is_suitable in (
        ("0.7.8", True),
        ("0.7.99", True),
        ("0.6.7", False),
        ("0.8.0", False),
        ("1.0rc1", False),
    ):
        monkeypatch.setattr(integrations, "version", lambda _, version=version: version)
        if is_suitable:
            integrations.require("faststream")
        else:
            with pytest.raises(
                MissingLibrary, match=f"works with faststream 0.7.8 or newer, but older than 0.8; {version} is"
            ):
                integrations.require("faststream")


def test_a_missing_framework_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(integrations, "version", missing)
    with pytest.raises(MissingLibrary, match=r"pocketmq.integrations.fastapi needs fastapi; run .* 'fastapi>=0.115'$"):
        integrations.require("fastapi")


def test_importing_pocketmq_and_its_client_imports_no_framework() -> None:
    frameworks = "faststream taskiq celery kombu fastapi starlette openlineage opentelemetry"
    code = f"import sys, pocketmq; pocketmq.Producer; print(set('{frameworks}'.split()) & set(sys.modules))"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"

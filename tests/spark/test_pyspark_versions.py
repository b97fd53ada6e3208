"""The documented table about PySpark is correct for the running version."""

import tomllib
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from packaging.requirements import Requirement
from packaging.version import Version
from tests.spark.versions import PYSPARK as PATCHES

from pocketmq.spark.pyspark_versions import FEATURES, PYSPARK, SUPPORTED, Feature, has

ROOT = Path(__file__).parents[2]
NEWEST_OF_DELTA = Version("4.2.0")
"""What delta-spark 4.4.1 requires at most."""


def is_there(name: str) -> bool:
    module, _, attribute = name.rpartition(".")
    try:
        found = import_module(module)
    except ModuleNotFoundError:
        owner, _, kind = module.rpartition(".")
        try:
            found = getattr(import_module(owner), kind)
        except (ModuleNotFoundError, AttributeError):
            return False
    return hasattr(found, attribute)


@pytest.mark.parametrize("feature", [one for one in FEATURES if one.name], ids=lambda one: one.name)
def test_a_version_has_the_features_of_the_table(feature: Feature) -> None:
    assert is_there(feature.name) == has(feature)


def test_a_missing_feature_of_a_version_has_an_alternative() -> None:
    assert [one.what for one in FEATURES if one.since > SUPPORTED[0] and not one.without] == []


def test_this_version_is_supported() -> None:
    assert PYSPARK in SUPPORTED
    assert [f"{major}.{minor}" for major, minor in SUPPORTED] == list(PATCHES)


def requirement(extra: str) -> Requirement:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    [found] = [one for one in map(Requirement, extras[extra]) if one.name == "pyspark"]
    return found


def test_the_extra_spark_permits_every_supported_version() -> None:
    one = requirement("spark")

    assert all(version in one.specifier for version in PATCHES.values())
    assert "3.5.9" not in one.specifier


def test_the_extra_all_installs_a_version_that_delta_supports() -> None:
    one = requirement("all")

    assert NEWEST_OF_DELTA in one.specifier
    assert "4.2.1" not in one.specifier

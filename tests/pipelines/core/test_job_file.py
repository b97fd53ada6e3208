"""Settings of a pipeline: the file, the flags that win over it, and every way to get them wrong."""

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from msgspec import Meta

from pocketmq.errors import InvalidSetting
from pocketmq.files import DiskFiles
from pocketmq.pipelines import JOBS
from pocketmq.pipelines.core.job_file import MAX_FILE_BYTES, read_job, settings_of
from pocketmq.pipelines.core.settings import Duration, StreamSettings

GOOD = 'topics = ["orders"]\ncheckpoint = "/c"\n'


class Settings(StreamSettings, frozen=True, kw_only=True, rename="kebab"):
    depth: Annotated[int, Meta(ge=1, le=9, description="How deep.")] = 3
    colour: Literal["red", "blue"] = "red"
    window: Duration = Duration(1000)


def read(tmp_path: Path, text: str | None, **flags: Any) -> Settings:
    path = None
    if text is not None:
        path = tmp_path / "job.toml"
        path.write_text(text, "utf-8")
    return read_job("dig", Settings, path=path, flags=flags, files=DiskFiles(), now_ms=0)


def test_flags_override_the_file(tmp_path: Path) -> None:
    text = f'pipeline = "dig"\n{GOOD}depth = 5\nwindow = "10m"\n[spark]\n"spark.a" = "1"\n"spark.b" = "2"\n'

    found = read(tmp_path, text, depth="7", colour="blue", spark={"spark.b": "3"})

    assert (found.topics, found.depth, found.colour, found.window) == (["orders"], 7, "blue", 600_000)
    assert found.spark == {"spark.a": "1", "spark.b": "3"}
    assert found.namesrv == "127.0.0.1:9876"


def test_flags_alone_are_sufficient(tmp_path: Path) -> None:
    found = read(tmp_path, None, topics=["a", "b"], checkpoint="/c", continuous=True, window="2s")

    assert (found.topics, found.continuous, found.window) == (["a", "b"], True, 2000)
    assert found.reading["subscribe"] == "a,b"


@pytest.mark.parametrize(
    ("text", "flags", "told"),
    [
        (GOOD + "dept = 3", {}, "job.toml: unknown key 'dept' for dig; did you mean depth?"),
        (GOOD + "max_messages = 3", {}, "did you mean max-messages?"),
        (GOOD + "zzzzzz = 3", {}, "the keys are checkpoint, "),
        (GOOD + "depth = 0", {}, "job.toml: depth = 0: expected int >= 1"),
        (GOOD + 'depth = "deep"', {}, "job.toml: depth = 'deep': expected int, got str"),
        (GOOD, {"depth": "12"}, "--depth = '12': expected int <= 9"),
        (GOOD, {"colour": "green"}, "--colour: Invalid enum value 'green'"),
        (GOOD, {"window": "soon"}, "--window: 'soon' is not a duration"),
        (GOOD + "metrics-port = 70000", {}, "job.toml: metrics-port = 70000: expected int <= 65535"),
        ('pipeline = "other"', {}, "is for the pipeline other, not for dig"),
        ("topics = [", {}, "job.toml is not TOML"),
        ('topics = "orders"\ncheckpoint = "/c"', {}, "job.toml: topics = 'orders': expected array, got str"),
        ('topics = []\ncheckpoint = "/c"', {}, "expected array of length >= 1"),
        ("", {}, "the pipeline dig needs the flag --topic and --checkpoint"),
        (None, {"topics": ["a"]}, "the pipeline dig needs the flag --checkpoint"),
    ],
)
def test_an_impossible_value_is_reported_with_its_file_and_key(
    tmp_path: Path, text: str | None, flags: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidSetting) as caught:
        read(tmp_path, text, **flags)

    assert told in str(caught.value)


def test_a_missing_or_invalid_file_is_reported(tmp_path: Path) -> None:
    def read_path(path: Path) -> None:
        read_job("dig", Settings, path=path, flags={}, files=DiskFiles(), now_ms=0)

    with pytest.raises(InvalidSetting, match="does not exist"):
        read_path(tmp_path / "none.toml")
    with pytest.raises(InvalidSetting, match="does not exist"):
        read_path(tmp_path)
    (tmp_path / "large").write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(InvalidSetting, match="a file with settings has at most"):
        read_path(tmp_path / "large")
    (tmp_path / "odd").write_bytes(b"\xff")
    with pytest.raises(InvalidSetting, match="is not TOML"):
        read_path(tmp_path / "odd")


def test_settings_of_a_pipeline_precede_common_ones() -> None:
    names = [setting.flag for setting in settings_of(Settings)]

    assert names[:3] == ["depth", "colour", "window"]
    assert names.index("topic") < names.index("starting") < names.index("namesrv") < names.index("spark")


@pytest.mark.parametrize("name", JOBS)
def test_every_setting_of_every_pipeline_has_a_description(name: str) -> None:
    for setting in settings_of(JOBS[name].settings):
        assert setting.description.strip().endswith((".", "]")), setting.name
        assert setting.word

"""Every body of a served request that the real servers, clients and tools sent, and every table they wrote, against the declared types.

What we write is held against what Java wrote, property by property. Exceptions:
- Java leaks a property wherever a class has a getter: `groupTopicMap` is derived from the offset table, the `…Str` ones repeat
  a time as a date. No client reads them, and we do not write them.
- Release 4.9.7, and requests written by hand (`raw`), lack properties that 5.3.3 has; we add those with their defaults.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.golden import GOLDEN, captured, needs_golden
from tests.protocol.bodies.forms import BODIES, FILES, NOT_SERVED, BodyForm, BodyKind

from pocketmq.codes import RequestCode, Version
from pocketmq.protocol.bodies.properties_text import read_properties, write_properties
from pocketmq.protocol.java_json import read_json, write_pretty_json

pytestmark = needs_golden

BODIES_CAPTURED = 2166
JSON_CAPTURED = 1659
FILES_CAPTURED = 30

LEAKS = {"groupTopicMap", "minTimeStampStr", "maxTimeStampStr", "consumeTimeStampStr"}

UNORDERED = {
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_TOPIC_STATS_INFO,
    RequestCode.GET_CONSUME_STATS,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.QUERY_CONSUME_TIME_SPAN,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.GET_BROKER_CONSUME_STATS,
    RequestCode.GET_ALL_PRODUCER_INFO,
    RequestCode.REGISTER_BROKER,
}
"""Bodies with a table of several entries, which Java writes in the order of its hashes, or with a leak."""


class Sample(NamedTuple):
    """A captured body: its file, its request, its type."""

    name: str
    code: RequestCode
    version: int
    form: BodyForm | None
    data: bytes

    @property
    def is_java_5(self) -> bool:
        return "/5.3.3/" in self.name and "/raw.jsonl" not in self.name


@cache
def samples() -> tuple[Sample, ...]:
    return tuple(_samples())


def _samples() -> Iterator[Sample]:
    for frame in captured():
        command = frame.command
        if command.body:
            code = RequestCode(command.code if frame.answers is None else frame.answers)
            if code in NOT_SERVED:
                continue
            forms = BODIES[code]
            form = forms.request if frame.answers is None else forms.response
            yield Sample(frame.name, code, command.version, form, command.body)


def json_samples() -> list[Sample]:
    return [sample for sample in samples() if sample.form and sample.form.kind is BodyKind.JSON]


def config_files() -> list[Path]:
    found = sorted(GOLDEN.glob("store/*/*/config/*.json*"))
    return [path for path in found if path.name.removesuffix(".bak") in FILES]


def additions(java: Any, ours: Any, path: str = "$") -> Iterator[str]:
    """Properties that only we write; fails on anything else that differs."""
    if not isinstance(java, dict):
        if isinstance(java, list):
            assert len(java) == len(ours), path
            for number, (theirs, mine) in enumerate(zip(java, ours, strict=True)):
                yield from additions(theirs, mine, f"{path}[{number}]")
        else:
            assert java == ours, path
        return
    assert isinstance(ours, dict), path
    assert java.keys() - ours.keys() <= LEAKS, path
    yield from (f"{path}.{key}" for key in ours.keys() - java.keys())
    for key in java.keys() & ours.keys():
        yield from additions(java[key], ours[key], f"{path}.{key}")


def test_every_captured_body_has_a_declared_form() -> None:
    undeclared = [f"{sample.name} {sample.code.name}" for sample in samples() if sample.form is None]

    assert undeclared == []
    assert len(samples()) == BODIES_CAPTURED
    assert len(json_samples()) == JSON_CAPTURED


def test_every_captured_json_body_survives_both_dialects() -> None:
    for sample in json_samples():
        assert sample.form
        body = sample.form.type.decode(sample.data)

        assert sample.form.type.decode(body.encode()) == body, sample.name
        assert sample.form.type.decode(body.encode(strict=True)) == body, sample.name


def test_encoded_bodies_have_the_fields_that_java_wrote() -> None:
    for sample in json_samples():
        assert sample.form
        ours = sample.form.type.decode(sample.data).encode()

        added = list(additions(read_json(sample.data), read_json(ours)))
        assert not (added and sample.is_java_5), (sample.name, added)


def test_bodies_without_tables_have_the_bytes_of_java() -> None:
    compared = 0
    for sample in json_samples():
        if sample.is_java_5 and sample.code not in UNORDERED:
            assert sample.form
            body = sample.form.type.decode(sample.data)
            # The name server writes routes strictly for release 4.9.4 and newer.
            strict = sample.code == RequestCode.GET_ROUTEINFO_BY_TOPIC and b'{"0":' in sample.data
            assert body.encode(strict=strict) == sample.data, sample.name
            compared += 1
    assert compared > 700


def test_every_captured_properties_text_reads_and_survives() -> None:
    texts = [sample.data for sample in samples() if sample.form and sample.form.kind is BodyKind.PROPERTIES]
    assert len(texts) > 10

    for text in texts:
        properties = read_properties(text)

        assert properties == dict(line.split("=", 1) for line in text.decode().splitlines())
        assert read_properties(write_properties(properties)) == properties
        if text.decode().splitlines() == sorted(text.decode().splitlines()):
            assert write_properties(properties) == text


def test_every_captured_file_is_read_and_written_with_the_same_lines() -> None:
    files = config_files()
    assert len(files) == FILES_CAPTURED

    for path in files:
        kind = FILES[path.name.removesuffix(".bak")]
        body = kind.decode(path.read_bytes())
        written = write_pretty_json(body)

        assert kind.decode(written) == body, path
        added = list(additions(read_json(path.read_bytes()), read_json(written)))
        if "/5.3.3/" in str(path):
            assert added == []
            if "groupTopicMap" not in path.read_text():
                assert lines(written) == lines(path.read_bytes()), path


def lines(data: bytes) -> list[bytes]:
    """Lines in order of their text: tables have any order, and the last entry has no comma."""
    return sorted(line.rstrip(b",") for line in data.split(b"\n"))


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_topics_groups_and_offsets_of_a_captured_store_are_read(version: str) -> None:
    config = GOLDEN / "store" / version / "clean" / "config"

    read = {
        name: kind.decode((config / name).read_bytes()) for name, kind in FILES.items() if (config / name).is_file()
    }

    assert read["topics.json"].topic_config_table["SCHEDULE_TOPIC_XXXX"].write_queue_nums == 18
    assert read["subscriptionGroup.json"].subscription_group_table["CG_store"].retry_max_times == 16
    assert read["consumerOffset.json"].offset_table["StoreA@CG_store"] == {0: 16, 1: 15}
    assert read["delayOffset.json"].offset_table[1] == 3


def test_brokers_announce_versions_that_the_rules_know() -> None:
    announced = {sample.version for sample in samples() if sample.code == RequestCode.REGISTER_BROKER}

    assert announced == {Version.V4_9_7, Version.V5_3_3}

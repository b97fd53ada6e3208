"""Impossible settings of a store."""

import pytest
from msgspec.structs import replace
from tests.store.kit import ROOT
from tests.store.open_store import OpenStore

from pocketmq.errors import InvalidMessage, InvalidSetting
from pocketmq.model.properties import MAX_BYTES
from pocketmq.protocol.frames import DEFAULT_LIMITS
from pocketmq.store.settings import KIB, MAX_ANSWER_BYTES, StoreSettings

USUAL = StoreSettings(folder=ROOT)


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("prepared_files", 1),
        ("max_message_bytes", 1),
        ("max_unsynced_bytes", 1),
        ("pool_buffers", 1),
        ("pool_buffer_bytes", 1),
        ("queue_file_entries", 1),
        ("max_read_entries", 1),
    ],
)
def test_required_settings_have_values(name: str, least: int) -> None:
    with pytest.raises(InvalidSetting, match=f"{name} = {least - 1} must be from {least} to "):
        replace(USUAL, **{name: least - 1})

    assert getattr(replace(USUAL, **{name: least}), name) == least


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("log_file_bytes", 2**31 - 1),
        ("queue_file_entries", (2**31 - 1) // 20),
        ("prepared_files", 1_000),
        ("pool_buffers", 100_000),
        ("pool_buffer_bytes", 2**31 - 1),
    ],
)
def test_settings_above_their_limit_are_refused(name: str, most: int) -> None:
    with pytest.raises(InvalidSetting, match=f"{name} = {most + 1} must be from "):
        replace(USUAL, **{name: most + 1})


def test_a_body_above_the_frame_limit_is_refused_for_any_setting() -> None:
    opened = OpenStore.small(max_message_bytes=10**9, log_file_bytes=2**25, prepared_files=1)
    topic, properties = "t" * 127, "n\x01" + "v" * (MAX_BYTES - 3) + "\x02"

    with pytest.raises(InvalidMessage, match=f"the limit is the size of a pull response = {MAX_ANSWER_BYTES}"):
        opened.stage(bytes(MAX_ANSWER_BYTES + 1))

    opened.send(bytes(MAX_ANSWER_BYTES), topic=topic, properties=properties)
    assert opened.store.read(topic, 0, 0, 1).size < DEFAULT_LIMITS.frame_bytes - KIB

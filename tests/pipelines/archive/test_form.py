"""How the files of a lake are: noted once, and the same for all of them."""

from pathlib import Path

import msgspec
import pytest

from pocketmq.errors import InvalidSetting, StoreDamaged
from pocketmq.pipelines.archive.form import PARQUET_OPTIONS, Form, Slot, keep_form, read_form
from pocketmq.pipelines.archive.settings import ArchiveSettings
from pocketmq.testing.faulty_files import FaultyFiles

LAKE = Path("/lake")


def test_a_lake_keeps_its_form() -> None:
    files = FaultyFiles()
    form = Form(slot=Slot.HOUR, properties=False)

    assert read_form(LAKE, files) is None
    assert keep_form(LAKE, form, files) == read_form(LAKE, files) == form
    with pytest.raises(InvalidSetting, match="has parquet files by hour, not orc by day"):
        keep_form(LAKE, Form(format="orc"), files)


def test_a_lake_that_once_had_properties_is_read_with_them() -> None:
    files = FaultyFiles()

    keep_form(LAKE, Form(properties=True), files)

    assert keep_form(LAKE, Form(properties=False), files).properties
    assert "properties map" in Form(properties=True).schema
    assert "properties" not in Form(properties=False).schema


def test_options_of_the_user_override_defaults() -> None:
    paged = {"parquet.page.size": "4096"}

    assert Form(options=paged).writing == {**PARQUET_OPTIONS, **paged}
    assert Form(format="orc", options={"compression": "zlib"}).writing == {"compression": "zlib"}


def test_a_damaged_file_with_the_form_is_reported() -> None:
    files = FaultyFiles()
    keep_form(LAKE, Form(), files)
    with files.open(LAKE / "_manifest" / "form") as file:
        file.write_at(0, b"?")

    with pytest.raises(StoreDamaged, match="form"):
        read_form(LAKE, files)
    assert msgspec.json.decode(msgspec.json.encode(Form()), type=Form) == Form()


def test_tasks_can_write_parquet_unless_an_option_or_codec_needs_spark() -> None:
    assert Form().is_of_tasks
    assert Form(options={"compression": "ZSTD"}).codec == "zstd"
    assert not Form(options={"compression": "lzo"}).is_of_tasks
    assert not Form(options={"parquet.page.size": "4096"}).is_of_tasks
    assert not Form(format="orc").is_of_tasks


def test_the_name_of_a_file_format_is_case_insensitive() -> None:
    settings = ArchiveSettings(topics=["orders"], lake="/lake", format="PARQUET")

    assert (settings.format, settings.has_manifest, settings.form) == ("parquet", True, Form())
    assert ArchiveSettings(topics=["orders"], lake="/lake", format="com.example.Own").format == "com.example.Own"

"""The resume point: exact, or none if there is any doubt."""

from pathlib import Path
from random import Random
from zlib import crc32

import msgspec
import pytest

from pocketmq.store.resume import ResumeFile, ResumePoint
from pocketmq.testing import FaultyFiles

ROOT = Path("/store")
POINT = ResumePoint(
    clean=True,
    checkpoint=bytes(range(40)),
    log_end=2**40,
    last_record=2**40 - 200,
    queues={("Orders", 0): (5, 1000), ("Orders", 3): (0, 7), ("%RETRY%g", 0): (0, 0), ("Ünï", 1): (2**50, 2**60)},
)


@pytest.fixture
def files() -> FaultyFiles:
    files = FaultyFiles()
    files.make_dir(ROOT)
    files.sync_dir(ROOT.parent)
    return files


def write(files: FaultyFiles, data: bytes) -> None:
    path = ResumeFile(files, ROOT).path
    files.make_dir(path.parent)
    with files.open(path, create=True) as file:
        file.truncate(0)
        file.write_at(0, data)


def test_a_resume_point_is_restored_after_a_power_loss(files: FaultyFiles) -> None:
    ResumeFile(files, ROOT).save(POINT)

    assert ResumeFile(files.crash(Random(1), survives="nothing"), ROOT).load() == POINT
    assert files.list(ROOT / "config") == ["resume.json"]


def test_an_almost_empty_resume_point_is_valid(files: FaultyFiles) -> None:
    file = ResumeFile(files, ROOT)

    file.save(ResumePoint(clean=False))

    assert file.load() == ResumePoint(clean=False, checkpoint=b"", log_end=0, last_record=-1, queues={})


def test_without_a_file_no_resume_point_exists(files: FaultyFiles, caplog: pytest.LogCaptureFixture) -> None:
    assert ResumeFile(files, ROOT).load() is None
    assert caplog.text == ""


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(100),
        b"{}",
        b"[]",
        b"null",
        b'{"crc":0}',
        b'{"crc":0,"point":{}}',
        b'{"crc":2745614147,"point":{}}',
        b'{"point":{"version":1}}',
        b"\xff\xfe",
        b"Hello",
    ],
)
def test_other_content_is_no_resume_point_and_is_logged(
    files: FaultyFiles, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    write(files, data)

    assert ResumeFile(files, ROOT).load() is None
    assert "ignoring the resume file /store/config/resume.json: " in caplog.text


def test_a_point_of_another_version_is_not_used(files: FaultyFiles) -> None:
    file = ResumeFile(files, ROOT)
    file.save(POINT)
    newer = files.read(file.path).replace(b'"version":1', b'"version":2')
    body = newer[newer.index(b'"point":') + 8 : -1]
    write(files, msgspec.json.encode({"crc": crc32(body), "point": msgspec.Raw(body)}))

    assert file.load() is None


def test_any_flipped_bit_is_detected(files: FaultyFiles) -> None:
    file = ResumeFile(files, ROOT)
    file.save(POINT)
    data = files.read(file.path)

    for bit in range(0, len(data) * 8, 3):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        write(files, bytes(flipped))
        assert file.load() in (None, POINT), f"bit {bit}"


def test_any_truncation_is_detected(files: FaultyFiles) -> None:
    file = ResumeFile(files, ROOT)
    file.save(POINT)
    data = files.read(file.path)

    for size in range(len(data)):
        write(files, data[:size])
        assert file.load() is None


def test_after_any_power_loss_the_old_or_the_new_point_exists(files: FaultyFiles) -> None:
    file = ResumeFile(files, ROOT)
    points = [ResumePoint(clean=False, log_end=number, queues={("T", 0): (0, number)}) for number in range(1, 4)]
    for point in points:
        file.save(point)

    found = [ResumeFile(crashed.files, ROOT).load() for crashed in files.crash_points(3, states=20)]

    assert all(point is None or point in points for point in found)
    seen = [point.log_end for point in found if point is not None]
    assert set(seen) == {1, 2, 3}


def test_a_resume_point_of_forty_thousand_queues_is_small(files: FaultyFiles) -> None:
    queues = {(f"SomeTopicOfUsualLength{topic}", id_): (10, 123_456_789) for topic in range(10_000) for id_ in range(4)}
    point = ResumePoint(clean=True, queues=queues)

    ResumeFile(files, ROOT).save(point)

    assert ResumeFile(files, ROOT).load() == point
    assert len(files.read(ROOT / "config" / "resume.json")) < 40_000 * 30

import pytest
from tests.store.made_store import MadeStore

from pocketmq.store.layout import KnownSizes
from pocketmq.store.tools.folder_check import find_foreign


@pytest.mark.parametrize(
    "name",
    [
        "lock",
        "abort",
        "abort.bak",
        "checkpoint",
        "broker.conf",
        "timerwheel",
        "timerwheel.86400",
        "timerlog/00000000000000000000",
        "compaction/position-checkpoint",
        "rebuild/index/20990101000000000",
        "commitlog/00000000000000000000",
        "index/20261115093434288",
        "config/topics.json",
        "config/topics.json.bak",
        "config/topics.json.tmp",
        "config/topics.json.damaged",
        "config/timercheck",
        "config/timermetrics",
        "config/transactionMetrics.bak",
        "config/resume.json",
    ],
)
def test_files_of_rocketmq_and_pocketmq_are_known(name: str) -> None:
    store = MadeStore()
    store.write(name, b"x")

    assert list(find_foreign(store.files, store.layout(KnownSizes()))) == []


@pytest.mark.parametrize(
    "name", ["core", "commitlog/1", "commitlog/00000000000000000000.gz", "index/x", "config/notes"]
)
def test_other_files_are_foreign(name: str) -> None:
    store = MadeStore()
    store.write(name, b"x")

    assert [finding.path for finding in find_foreign(store.files, store.layout(KnownSizes()))] == [name]

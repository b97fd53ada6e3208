"""A listener publishes the progress that Spark reports for its own query, and ignores other queries."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.spark.broker_kit import Broker, fill, new_topic, options, queue

from pocketmq import Admin
from pocketmq.errors import InvalidSetting
from pocketmq.model.queue import MessageQueue
from pocketmq.spark.read.offsets import QueryOffset
from pocketmq.spark.read.progress_listener import ProgressListener


def progress(*sources: tuple[Any, Any]) -> Any:
    """An event, with (endOffset, latestOffset) of each source."""
    shown = [{"endOffset": end, "latestOffset": latest} for end, latest in sources]
    return SimpleNamespace(progress=SimpleNamespace(json=json.dumps({"sources": shown})))


def shown(group: str, *present: MessageQueue) -> str:
    """What the progress of a query shows beside its offsets: its group, and the queues that there are."""
    return json.dumps({**QueryOffset(dict.fromkeys(present, 9)).to_json(), "groupId": group})


def test_the_end_of_a_batch_is_published_for_its_group_alone(broker: Broker) -> None:
    topic = new_topic(broker, queues=1)
    fill(broker, topic, [str(number) for number in range(9)])
    place = queue(broker, topic, 0)
    listener = ProgressListener(options(broker, groupId="listened"))

    def ended(at: int, group: str) -> tuple[str, str]:
        return json.dumps(QueryOffset({place: at}).to_json()), shown(group, place)

    listener.onQueryProgress(progress(("no JSON", None), ("[1]", "[2]"), ended(9, "other"), ended(4, "listened")))

    with Admin(broker.name_server) as admin:
        assert admin.offsets.committed("listened", topic)[place] == 4


def test_missing_queues_do_not_prevent_the_others_from_being_published(broker: Broker) -> None:
    topic = new_topic(broker, queues=1)
    fill(broker, topic, [str(number) for number in range(9)])
    place, gone = queue(broker, topic, 0), queue(broker, f"{topic}-deleted", 0)
    listener = ProgressListener(options(broker, groupId="unmoved"))
    end = QueryOffset({place: 4, gone: 7}).to_json()

    listener.onQueryProgress(progress((json.dumps(end), shown("unmoved", place))))

    with Admin(broker.name_server) as admin:
        assert admin.offsets.committed("unmoved", topic)[place] == 4


def test_unavailable_brokers_stop_no_query(caplog: pytest.LogCaptureFixture) -> None:
    away = {"rocketmq.namesrv.addr": "127.0.0.1:1", "groupId": "listened", "fetchOffset.numRetries": "0"}
    listener = ProgressListener(away)
    end = QueryOffset({queue(Broker("", "broker-a"), "orders", 0): 1}).to_json()

    listener.onQueryProgress(progress((json.dumps(end), shown("listened", queue(Broker("", "broker-a"), "orders", 0)))))

    assert "Publishing the offsets of the query to group listened failed" in caplog.text


def test_a_listener_needs_a_group_and_knows_its_options() -> None:
    with pytest.raises(InvalidSetting, match=r"needs the option groupId"):
        ProgressListener({"rocketmq.namesrv.addr": "127.0.0.1:9876"})
    with pytest.raises(InvalidSetting, match=r"did you mean groupId\?"):
        ProgressListener({"rocketmq.namesrv.addr": "127.0.0.1:9876", "groupIt": "x"})


def test_an_outage_of_brokers_is_logged_and_nothing_is_published(caplog: pytest.LogCaptureFixture) -> None:
    listener = ProgressListener({"rocketmq.namesrv.addr": "127.0.0.1:1", "groupId": "listened"})
    place = queue(Broker("", "broker-a"), "orders", 0)
    seen = {**json.loads(shown("listened", place)), "outage": {"error": "ConnectFailed: refused", "lastedMs": 12_000}}

    listener.onQueryProgress(progress((json.dumps(QueryOffset({place: 1}).to_json()), json.dumps(seen))))

    assert "The query of group listened waits for brokers: ConnectFailed: refused" in caplog.text
    assert "ublishing" not in caplog.text

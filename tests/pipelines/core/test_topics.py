"""Topics that pipelines need: checked, and created."""

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.spark.broker_kit import Broker, new_topic, options

from pocketmq.errors import TopicNotFound
from pocketmq.pipelines.core.plan import ensure_topics, require_topics


def test_a_missing_topic_is_reported_or_created(broker: Broker) -> None:
    there = new_topic(broker)

    with pytest.raises(TopicNotFound, match="pocketmq topic ls"):
        require_topics(options(broker), [there, f"{there}-x"])
    made = ensure_topics(options(broker), [there, f"{there}-x"])

    assert made == [f"{there}-x"]
    require_topics(options(broker), [there, f"{there}-x"])

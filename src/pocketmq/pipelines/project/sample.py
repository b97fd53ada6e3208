"""Messages to try a project with: `sample/orders.jsonl` has a message of the topic `orders` on each line."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pocketmq.client import Producer
from pocketmq.errors import InvalidSetting
from pocketmq.files import Files
from pocketmq.model.message import Message
from pocketmq.pipelines.topics import ensure_topics

FOLDER: Final = "sample"
SUFFIX: Final = ".jsonl"
QUEUES: Final = 4
MAX_BYTES: Final = 64 * 1024 * 1024


def read_sample(project: Path, files: Files) -> dict[str, list[bytes]]:
    """Bodies by topic; a topic without any is only made."""
    found = {}
    for name in files.list(project / FOLDER):
        path = project / FOLDER / name
        if not name.endswith(SUFFIX):
            continue
        status = files.status(path)
        if status is not None and status.size > MAX_BYTES:
            raise InvalidSetting(f"{path} has {status.size:,} bytes; a sample has at most {MAX_BYTES:,}")
        found[name.removesuffix(SUFFIX)] = [line for line in files.read(path).splitlines() if line.strip()]
    return found


def send_sample(name_server: str, sample: Mapping[str, list[bytes]]) -> dict[str, int]:
    """Make the topics that are not there, and send their messages: how many, by topic. Topics that are there stay as they are."""
    made = ensure_topics({"rocketmq.namesrv.addr": name_server}, sample, queues=QUEUES)
    with Producer(name_server, group="pocketmq-sample") as producer:
        for topic in made:
            for body in sample[topic]:
                producer.send(Message(topic, body))
    return {topic: len(sample[topic]) for topic in made}

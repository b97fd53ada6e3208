"""Shared by the tests of commands that query a running cluster."""

import json
from typing import Any

from click.testing import CliRunner, Result

import pocketmq
from pocketmq.cli import main


class RunningCluster:
    """A real server, and `pocketmq … --namesrv` of it."""

    def __init__(self, server: pocketmq.Server) -> None:
        self.name_server = server.name_server

    def run(self, *args: object, text_in: str | None = None) -> Result:
        """A command that ends by itself; a traceback fails the test."""
        words = [*map(str, args), "--namesrv", self.name_server]
        result = CliRunner().invoke(main, words, input=text_in)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def ask(self, *args: object) -> list[dict[str, Any]]:
        """What a command that must go well prints as JSON."""
        result = self.run(*args, "--json")
        assert result.exit_code == 0, result.stderr
        return [json.loads(line) for line in result.stdout.splitlines()]

    def send(self, topic: str, *bodies: bytes, queue: int | None = None, **options: Any) -> list[pocketmq.SendResult]:
        place = None if queue is None else pocketmq.MessageQueue(topic, "broker-a", queue)
        with pocketmq.Producer(self.name_server) as producer:
            return [producer.send(topic, body, queue=place, **options) for body in bodies]

    def create(self, topic: str, queues: int = 1) -> None:
        with pocketmq.Admin(self.name_server) as admin:
            admin.topics.create(topic, queues=queues)

    def stand(self, group: str, topic: str, offset: int, queue: int = 0) -> None:
        """Create a group with a committed offset in a queue."""
        with pocketmq.Admin(self.name_server) as admin:
            if group not in admin.groups.names():
                admin.groups.create(group)
            admin.offsets.reset(group, topic, {pocketmq.MessageQueue(topic, "broker-a", queue): offset})

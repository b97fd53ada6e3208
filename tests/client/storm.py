"""A storm of processes: members of a group join, leave and are killed by SIGKILL while another process sends.

python -m tests.client.storm --messages 100000        about a minute

Every message that a broker confirmed is handled. Some may be handled twice: those that a member had done when it was killed, but
had not told the broker of, and those that were on their way to a queue's old owner when it got a new one.
"""

import random
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import NamedTuple

import click
from tests.client.processes import Child, Children, processes

from pocketmq import Admin

TOPIC = "Storm"
GROUP = "storm"
MEMBERS = 3
QUEUES = 8
LEAST_WAVES = 6
WAVE_MESSAGES = 2_500


class Outcome(NamedTuple):
    """What became of the messages of a storm."""

    sent: set[str]
    handled: Counter[str]
    killed: int
    left: int

    @property
    def lost(self) -> set[str]:
        return self.sent - self.handled.keys()

    @property
    def doubled(self) -> int:
        """Calls of listeners beyond the first one of each message."""
        return self.handled.total() - len(self.handled)

    def __str__(self) -> str:
        return (
            f"{len(self.sent)} sent, {len(self.handled)} handled, {len(self.lost)} lost, {self.doubled} doubled; "
            f"members: {self.killed} killed, {self.left} left"
        )


class Storm:
    """Three members at a time. In each wave, one of them ends and another one joins while messages are under way."""

    def __init__(self, children: Children, name_server: str, seed: int) -> None:
        self._children = children
        self._name_server = name_server
        self._dice = random.Random(seed)
        self._everybody: list[Child] = []
        self._members: list[Child] = []
        self._killed = self._left = 0

    def run(self, messages: int) -> Outcome:
        with Admin(self._name_server) as admin:
            admin.topics.create(TOPIC, queues=QUEUES)
        sender = self._children.client("sender", self._name_server, TOPIC)
        for _ in range(MEMBERS):
            self._join()
        self._children.until_ready(sender, *self._members)
        for wave in _waves(messages):
            self._rage(sender, wave)
        self._children.until(lambda: len(sender.said) == messages + 1, "the confirmation of every message")
        assert sender.leave() == 0
        sent = set(sender.said[1:])
        self._children.until(lambda: self._has_all(sent), "every message", patience_s=60 + messages / 500)
        for member in self._members:
            assert member.leave() == 0
        return Outcome(sent, self._handled(), self._killed, self._left)

    def _rage(self, sender: Child, wave: int) -> None:
        """When a part of this wave is consumed, one member leaves and another joins."""
        part = self._calls() + self._dice.randint(1, max(wave // 3, 1))
        sender.tell(wave)
        self._children.until(lambda: self._calls() >= part, "a part of a wave")
        self._end_somebody()
        self._children.until_ready(self._join())

    def _end_somebody(self) -> None:
        """In the middle of its work."""
        victim = self._members.pop(self._dice.randrange(len(self._members)))
        if self._dice.random() < 0.6:
            victim.kill()
            self._killed += 1
        else:
            assert victim.leave() == 0, victim.log.read_text()
            self._left += 1

    def _join(self) -> Child:
        member = self._children.client("member", self._name_server, GROUP, TOPIC)
        self._members.append(member)
        self._everybody.append(member)
        return member

    def _calls(self) -> int:
        return sum(max(len(member.said) - 1, 0) for member in self._everybody)

    def _has_all(self, sent: set[str]) -> bool:
        return self._calls() >= len(sent) and sent <= self._handled().keys()

    def _handled(self) -> Counter[str]:
        return Counter(line for member in self._everybody for line in member.said if is_body(line))


def is_body(line: str) -> bool:
    """Whether a member has printed that it handled a message; it may do so before it prints that it is ready."""
    return line.isdigit()


def _waves(messages: int) -> list[int]:
    count = max(LEAST_WAVES, messages // WAVE_MESSAGES)
    return [messages * (wave + 1) // count - messages * wave // count for wave in range(count)]


def storm(folder: Path, messages: int, seed: int) -> Outcome:
    """A storm over a server of its own, which keeps its data in `folder`."""
    with processes(folder) as children:
        ports = ("--namesrv-port", 0, "--broker-port", 0)
        _, told = children.server("serve", *ports, "--data", folder / "data")
        return Storm(children, told["name_server"], seed).run(messages)


@click.command()
@click.option("--messages", default=100_000, show_default=True, help="How many are sent.")
@click.option("--seed", type=int, help="Who ends when, again; by chance unless given.")
def main(messages: int, seed: int | None) -> None:
    """Kill members of a group while messages are sent, and see whether each of them is handled."""
    seed = random.randrange(2**32) if seed is None else seed
    began = monotonic()
    with TemporaryDirectory() as folder:
        outcome = storm(Path(folder), messages, seed)
    click.echo(f"seed {seed}: {outcome} ({monotonic() - began:.0f} s)")
    raise SystemExit(1 if outcome.lost else 0)


if __name__ == "__main__":
    main()

"""A load generator in plain Python: a few connections, a window of requests on each, and a check of every answer.

    python -m bench.broker.load --port 10911 --mode send --conns 16 --window 64 --seconds 3
    python -m bench.broker.load --port 10911 --mode batch --batch 32 --window 8
    python -m bench.broker.load --port 10911 --mode pull --pull-max 32 --window 8       what one of the others has stored

Requests are encoded once (`frames`); all answers of one read are followed by as many requests in one write. It needs about
four microseconds per message, which is no less than our broker does: where a C compiler is, the benchmark takes a
generator in C instead, which understands the same options.
"""

import argparse
import os
import random
import sys
from array import array
from collections.abc import Sequence
from contextlib import ExitStack
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from time import perf_counter, sleep, time

import msgspec

from bench.broker.calls import Line
from bench.broker.frames import FIRST_OPAQUE, LAST_OPAQUE, TOPIC_NUMBER, batch_format, pull_format, send_format
from bench.broker.ledger import Ledger, count_records
from bench.broker.machine import cpu_s
from bench.broker.shots import NotMeasured
from pocketmq.codes import RequestCode
from pocketmq.errors import PocketMQError
from pocketmq.protocol.command import RESPONSE
from pocketmq.protocol.frames import FrameSplitter

MODES = ("send", "oneway", "batch", "pull")
MOST_UNDER_WAY = 65_536
READ_BYTES = 1 << 18
ONEWAY_PER_WRITE = 256
LAST_ANSWERS_S = 5.0
"""How long answers that are under way at the end are waited for."""
STILL_S = 3.0
"""Queues that have not moved for so long have got all that they will get."""


class Options(msgspec.Struct):
    host: str
    port: int
    mode: str
    topic: str
    queues: int
    topics: int
    conns: int
    window: int
    size: int
    batch: int
    pull_max: int
    seconds: float
    warm: float
    count: int
    pid: str
    creates: bool
    verifies: bool


class _Fields(msgspec.Struct, rename="camel"):
    queue_id: int = 0
    queue_offset: int = -1


class _Answer(msgspec.Struct, rename="camel"):
    code: int
    opaque: int
    flag: int
    remark: str | None = None
    ext_fields: _Fields | None = None


_decode = msgspec.json.Decoder(_Answer, strict=False).decode


class Connection:
    """One socket, what it could not write yet, and what it still waits for."""

    def __init__(self, line: Line) -> None:
        self.socket = line.socket
        self.socket.setblocking(False)
        self.frames = FrameSplitter()
        self.unsent = b""
        self.under_way: dict[int, tuple[float, int]] = {}
        """By opaque: when it was sent, and from which offset it pulls."""

    def write(self, data: bytes) -> None:
        self.unsent += data
        self.flush()

    def flush(self) -> None:
        try:
            self.unsent = self.unsent[self.socket.send(self.unsent) :]
        except BlockingIOError:
            return


class Load:
    """One run against one broker. `run` gives what is printed."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lines = ExitStack()
        self._control = self._lines.enter_context(Line(options.port, options.host))
        self._formats = [self._format(queue_id) for queue_id in range(options.queues)]
        self._ledgers = [Ledger() for _ in range(options.queues)]
        self._per_request = options.batch if options.mode == "batch" else 1
        self._ids = [b"id%d" % number for number in range(self._per_request)]
        self._next_id = random.getrandbits(31)
        self._next_opaque = FIRST_OPAQUE
        self._sent = 0
        self._acked = self._measured = self._errors = self._lost = 0
        self._first_error = ""
        self._latencies = array("d")
        self._selector = self._lines.enter_context(DefaultSelector())
        self._is_measuring = False
        self._range = (0, 0)
        self._next_offset = 0

    def run(self) -> dict[str, object]:
        with self._lines:
            return self._run()

    def _run(self) -> dict[str, object]:
        options = self._options
        self._prepare()
        before = self._control.stored(options.topic, options.queues) if self._verifies else 0
        connections = self._connect()
        seconds, own, server = self._one_way(connections[0], before) if self._is_oneway else self._loop(connections)
        stored = self._stored_since(before) if self._verifies else -1
        if self._is_oneway:
            self._acked = self._measured = stored
            self._lost = self._sent - stored
        elif self._verifies and not all(ledger.is_true for ledger in self._ledgers):
            raise NotMeasured("the broker returned one offset for two messages, or skipped one")
        return self._told(seconds, own, server, stored)

    @property
    def _is_oneway(self) -> bool:
        return self._options.mode == "oneway"

    @property
    def _verifies(self) -> bool:
        """Whether queues are asked what arrived; without answers there is no other way to know."""
        options = self._options
        return self._is_oneway or (options.verifies and options.mode != "pull" and not options.topics)

    def _format(self, queue_id: int) -> bytes:
        options = self._options
        topic = f"{options.topic}{TOPIC_NUMBER}" if options.topics else options.topic
        if options.mode == "pull":
            return pull_format(topic, queue_id, options.pull_max)
        if options.mode == "batch":
            return batch_format(topic, queue_id, options.queues, options.size, options.batch)
        return send_format(topic, queue_id, options.queues, options.size, is_oneway=self._is_oneway)

    def _prepare(self) -> None:
        options, control = self._options, self._control
        if options.mode != "pull":
            if options.creates and not options.topics:
                control.create_topic(options.topic, options.queues)
            return
        lowest = control.offset(RequestCode.GET_MIN_OFFSET, options.topic, 0)
        highest = control.offset(RequestCode.GET_MAX_OFFSET, options.topic, 0)
        if highest - lowest < options.pull_max:
            raise NotMeasured(f"queue 0 of {options.topic} holds {highest - lowest} messages: send some first")
        self._range, self._next_offset = (lowest, highest), lowest

    def _connect(self) -> list[Connection]:
        options = self._options
        connections = []
        for number in range(options.conns):
            line = self._lines.enter_context(Line(options.port, options.host))
            line.heartbeat(f"127.0.0.1@load{os.getpid()}-{number}")
            connection = Connection(line)
            connections.append(connection)
            self._selector.register(connection.socket, EVENT_READ, connection)
        return connections

    # requests

    def _request(self) -> tuple[bytes, int, int]:
        """The next request, its opaque and the offset that it pulls from."""
        opaque = self._next_opaque
        self._next_opaque = opaque + 1 if opaque < LAST_OPAQUE else FIRST_OPAQUE
        numbers = {b"opaque": opaque, b"born": int(time() * 1000)}
        if self._options.topics:
            numbers[b"topic"] = self._sent // self._options.queues % self._options.topics
        queue_id = self._sent % self._options.queues
        self._sent += 1
        if self._options.mode == "pull":
            offset = numbers[b"offset"] = self._next_offset
            self._next_offset += self._options.pull_max
            if self._next_offset + self._options.pull_max > self._range[1]:
                self._next_offset = self._range[0]
            return self._formats[0] % numbers, opaque, offset
        for name in self._ids:
            numbers[name] = self._next_id & 0xFFFFFFFF
            self._next_id += 1
        return self._formats[queue_id] % numbers, opaque, 0

    def _refill(self, connection: Connection, now: float) -> None:
        """Use the whole window."""
        room = self._options.window - len(connection.under_way)
        if self._options.count:
            room = min(room, self._options.count - self._sent)
        parts = []
        for _ in range(room):
            request, opaque, offset = self._request()
            connection.under_way[opaque] = (now, offset)
            parts.append(request)
        if parts:
            connection.write(b"".join(parts))

    # answers

    def _accept(self, connection: Connection, header: bytes, body: bytes, now: float) -> None:
        answer = _decode(header)
        if not answer.flag & RESPONSE:
            return
        known = connection.under_way.pop(answer.opaque, None)
        if known is None:
            self._lost += 1
            return
        sent_at, offset = known
        if answer.code != 0:
            self._errors += 1
            self._first_error = self._first_error or f"{answer.code}: {answer.remark}"
            return
        if self._options.mode == "pull":
            messages = count_records(body, offset)
        else:
            messages = self._per_request
            fields = answer.ext_fields or _Fields()
            self._ledgers[fields.queue_id].add(fields.queue_offset, messages)
        self._acked += messages
        if self._is_measuring:
            self._measured += messages
            self._latencies.append(now - sent_at)

    def _read(self, connection: Connection) -> None:
        data = connection.socket.recv(READ_BYTES)
        if not data:
            raise NotMeasured("the broker closed a connection")
        now = perf_counter()
        for encoding, header, body in connection.frames.feed(data):
            if encoding != 0:
                raise NotMeasured("the broker answered a JSON header with a binary one")
            self._accept(connection, header, body, now)

    # time

    def _loop(self, connections: list[Connection]) -> tuple[float, float, float]:
        """Warm up, measure, and wait for the last answers: seconds measured, CPU of ours and of the server in them."""
        options = self._options
        start = perf_counter()
        for connection in connections:
            self._refill(connection, start)
        begin, end = start + options.warm, float("inf")
        measured = (0.0, 0.0, 0.0)
        from_own = from_server = 0.0
        while True:
            now = perf_counter()
            if not self._is_measuring and end == float("inf") and now >= begin:
                self._is_measuring, begin = True, now
                from_own, from_server = _own_cpu_s(), self._server_cpu_s()
            is_done = bool(options.count) and self._sent >= options.count and not _waits(connections)
            if self._is_measuring and (is_done or (not options.count and now >= begin + options.seconds)):
                self._is_measuring, end = False, now
                measured = (now - begin, _own_cpu_s() - from_own, self._server_cpu_s() - from_server)
            if end != float("inf"):
                if not _waits(connections):
                    return measured
                if now > end + LAST_ANSWERS_S:
                    self._lost += sum(len(connection.under_way) for connection in connections)
                    return measured
            self._turn(is_ending=end != float("inf"))

    def _turn(self, *, is_ending: bool) -> None:
        for key, events in self._selector.select(0.01):
            connection: Connection = key.data
            if events & EVENT_READ:
                self._read(connection)
                if not is_ending:
                    self._refill(connection, perf_counter())
            else:
                connection.flush()
            wanted = EVENT_READ | EVENT_WRITE if connection.unsent else EVENT_READ
            if wanted != key.events:
                self._selector.modify(connection.socket, wanted, connection)

    def _one_way(self, connection: Connection, before: int) -> tuple[float, float, float]:
        """As fast as the broker reads; then wait until it has stored all, or stands still. All of that time counts."""
        connection.socket.setblocking(True)
        start, own, server = perf_counter(), _own_cpu_s(), self._server_cpu_s()
        while perf_counter() < start + self._options.seconds:
            connection.socket.sendall(b"".join(self._request()[0] for _ in range(ONEWAY_PER_WRITE)))
        moved_at, stored = perf_counter(), 0
        while stored < self._sent and perf_counter() < moved_at + STILL_S:
            sleep(0.002)
            found = self._control.stored(self._options.topic, self._options.queues) - before
            if found != stored:
                moved_at, stored = perf_counter(), found
        return moved_at - start, _own_cpu_s() - own, self._server_cpu_s() - server

    def _stored_since(self, before: int) -> int:
        """Queues may be built behind the acknowledgement, so they get a moment."""
        deadline = perf_counter() + STILL_S
        while True:
            stored = self._control.stored(self._options.topic, self._options.queues) - before
            if stored >= self._acked or perf_counter() > deadline:
                return stored
            sleep(0.005)

    def _server_cpu_s(self) -> float:
        return cpu_s(int(pid) for pid in self._options.pid.split("+")) if self._options.pid else 0.0

    def _told(self, seconds: float, own_s: float, server_s: float, stored: int) -> dict[str, object]:
        latencies = sorted(self._latencies)
        seconds = max(seconds, 1e-9)
        return {
            "mode": self._options.mode,
            "seconds": round(seconds, 3),
            "messages": self._measured,
            "rate": round(self._measured / seconds, 1),
            "p50_us": percentile(latencies, 0.5) * 1e6,
            "p99_us": percentile(latencies, 0.99) * 1e6,
            "p999_us": percentile(latencies, 0.999) * 1e6,
            "errors": self._errors,
            "lost": self._lost,
            "acked": self._acked,
            "stored": stored,
            "generator_cpu": own_s / seconds,
            "server_us": server_s * 1e6 / self._measured if self._measured else 0.0,
            "first_error": self._first_error,
        }


def percentile(ordered: Sequence[float], share: float) -> float:
    """The least value that `share` of all do not exceed; 0 when there is none."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def _waits(connections: Sequence[Connection]) -> bool:
    return any(connection.under_way for connection in connections)


def _own_cpu_s() -> float:
    return sum(os.times()[:2])


def read_options(arguments: Sequence[str] | None = None) -> tuple[Options, bool]:
    """What is asked for, and whether JSON is wanted."""
    parser = argparse.ArgumentParser("python -m bench.broker.load", description="A load generator for any broker.")
    add = parser.add_argument
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=10911)
    add("--mode", choices=MODES, default="send")
    add("--topic", default="bench")
    add("--queues", type=int, default=8, help="of the topic, when it is created; pulls read queue 0")
    add("--topics", type=int, default=0, help="send to so many topics in turn: TOPIC00000, TOPIC00001 …")
    add("--conns", type=int, default=1, help="connections")
    add("--window", type=int, default=1, help="requests under way on each connection")
    add("--size", type=int, default=100, help="bytes of a body")
    add("--batch", type=int, default=32, help="messages in a batch")
    add("--pull-max", type=int, default=32, help="messages in a pull")
    add("--seconds", type=float, default=3.0, help="how long is measured")
    add("--warm", type=float, default=0.5, help="seconds before it is measured")
    add("--count", type=int, default=0, help="requests, instead of seconds")
    add("--pid", default="", help="of the broker, or PID+PID for several; their CPU is reported")
    add("--no-create", dest="creates", action="store_false", help="the topic is there, or sending creates it")
    add("--no-verify", dest="verifies", action="store_false", help="others send, too: do not look at offsets")
    add("--json", action="store_true", help="one line of JSON")
    given = vars(parser.parse_args(arguments))
    as_json = given.pop("json")
    options = Options(**given)
    if options.topics and options.mode != "send":
        parser.error("only sends go to several topics")
    numbers = (options.queues, options.conns, options.window, options.size, options.batch, options.pull_max)
    if min(numbers) < 1 or options.seconds <= 0 or options.warm < 0:
        parser.error("numbers of queues, connections, requests, messages, bytes and seconds are positive")
    if options.conns * options.window > MOST_UNDER_WAY:
        parser.error(f"at most {MOST_UNDER_WAY} requests may be under way")
    return options, as_json


def main(arguments: Sequence[str] | None = None) -> None:
    options, as_json = read_options(arguments)
    try:
        shot = Load(options).run()
    except (NotMeasured, PocketMQError, msgspec.MsgspecError, OSError) as error:
        sys.exit(f"{options.host}:{options.port}: {error}")
    if as_json:
        print(msgspec.json.encode(shot).decode())
        return
    print(f"{shot['rate']:,.0f} messages/s in {shot['seconds']} s, {shot['errors']} refused, {shot['lost']} lost")
    print(f"p50 {shot['p50_us']:,.0f} us, p99 {shot['p99_us']:,.0f} us, p99.9 {shot['p999_us']:,.0f} us")
    if options.pid:
        print(f"{shot['server_us']:.2f} us of the broker's CPU per message")
    if shot["first_error"]:
        print(f"the first refusal: {shot['first_error']}")


if __name__ == "__main__":
    main()

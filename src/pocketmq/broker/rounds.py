"""A round: turns of several connections whose sends share one write to the log.

    reads of one round of the loop    A ── sends ──► put off ─┐
                                      B ── a pull ─► served   │
                                      C ── sends ──► put off ─┴─► A's turn, C's turn ── one write to the log ──► answers to A, to C

Where many connections send one message each and wait, a write for each of them is most of the work. Who alone sends has nothing to
share, and is not made to wait: only sends of another connection than the last one begin a round. Nor is who sends much at once: beside
that, a write costs little, and with the batches of others it would be one of megabytes, which no cache holds. All of a round is done in
one go, so between two steps of the loop nothing is half staged, as without rounds.
"""

import logging
from collections.abc import Callable
from typing import Final

from pocketmq.clock import Clock
from pocketmq.errors import ConnectionLost
from pocketmq.net.peer import Peer
from pocketmq.protocol.frames import Frame

log = logging.getLogger("pocketmq.broker")

BEGINNING: Final = 11
"""Bytes with which a header tells its code, with whatever library a client writes it."""
USUAL_SENDS: Final = b'{"code":310', b'{"code":320'
SHARED_BYTES: Final = 32 * 1024
"""Turns with more bytes of bodies are not put off."""


class Round:
    """`end` writes what the turns have staged, and answers. After `budget_s` it is called in between, so that the first need not
    wait for the last.
    """

    def __init__(self, end: Callable[[], None], budget_s: float, clock: Clock) -> None:
        self._end = end
        self._budget_s = budget_s
        self._clock = clock
        self._peers: list[Peer] = []
        self._last: Peer | None = None
        self.under_way = False
        """Whether turns are being taken now: their end is the round's."""

    def joined(self, peer: Peer, frames: list[Frame]) -> bool:
        """Whether this turn is put off, to be taken with others."""
        if frames[0][1][:BEGINNING] not in USUAL_SENDS:
            return False
        alone = not self._peers
        if (alone and peer is self._last) or peer.line.ends_after_turn:
            return False
        if sum(len(body) for _, _, body in frames) > SHARED_BYTES:
            return False
        if alone:
            peer.line.loop.call_soon(self.take)
        peer.line.put_off(frames)
        self._peers.append(peer)
        self._last = peer
        return True

    def take(self) -> None:
        """Take the turns that were put off. Harmless when there are none."""
        peers, self._peers = self._peers, []
        deadline = self._clock.monotonic() + self._budget_s
        self.under_way = True
        try:
            for peer in peers:
                peer.line.take_put_off()
                if self._clock.monotonic() > deadline:
                    self._end()
                    deadline = self._clock.monotonic() + self._budget_s
            self._end()
        except Exception as error:
            log.exception("a round of %d turns failed; their lines are closed", len(peers))
            for peer in peers:
                peer.line.abort(ConnectionLost(f"a round of turns failed: {error}"))
        finally:
            self.under_way = False

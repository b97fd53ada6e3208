"""One loop thread for all blocking clients of a process, so that they share connections as clients of one loop do.

    first client ── borrow ──► the portal is made        last client ── give back ──► its thread ends and is joined

After a fork the child's portal starts a thread of its own when it is used; who had borrowed it before still has it.
"""

import os
import threading

from pocketmq.net.portal import Portal


class SharedPortal:
    """Counts who uses the portal."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the two below
        self._portal: Portal | None = None
        self._users = 0
        os.register_at_fork(after_in_child=self._begin_anew)

    def borrow(self) -> Portal:
        with self._lock:
            if self._portal is None:
                self._portal = Portal("pocketmq client")
            self._users += 1
            return self._portal

    def give_back(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users:
                return
            portal, self._portal = self._portal, None
        assert portal is not None, "given back more often than borrowed"
        portal.close()

    def _begin_anew(self) -> None:
        self._lock = threading.Lock()  # a thread that the child does not have may have held it


SHARED = SharedPortal()

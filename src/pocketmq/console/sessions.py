"""Sessions: who sits behind a cookie, and the token that proves that a form came from our own page.

    cookie  pocketmq_console=<32 random bytes>   HttpOnly, SameSite=Strict, Secure with TLS
    token   HMAC(key of this process, cookie)    in every form; another site cannot read it, and so cannot send it

Without a login a session has nobody in it, and its token protects all the same.
"""

import hmac
import secrets
from collections.abc import Callable
from typing import Final

import msgspec

from pocketmq.clock import Clock
from pocketmq.console.users_file import Role, User

COOKIE: Final = "pocketmq_console"


class Session(msgspec.Struct, frozen=True):
    """Whoever has this id in the cookie. `user` is None where nobody is asked to log in."""

    session_id: str
    user: User | None
    expires: float
    """By the monotonic clock."""

    @property
    def name(self) -> str | None:
        return None if self.user is None else self.user.name

    @property
    def role(self) -> Role:
        return Role.OPERATOR if self.user is None else self.user.role


class Sessions:
    """Those that are open. The oldest goes when there are too many, and those of a user whom the file has not as before."""

    def __init__(
        self, clock: Clock, session_s: float, max_sessions: int, may_stay: Callable[[User], bool] = lambda _: True
    ) -> None:
        self._clock = clock
        self._may_stay = may_stay
        self._session_s = session_s
        self._max_sessions = max_sessions
        self._key = secrets.token_bytes(32)
        self._open: dict[str, Session] = {}
        self._notes: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, user: User | None) -> Session:
        """A new one with an id that nobody knows yet: an id from before a login is never kept."""
        while len(self._open) >= self._max_sessions:
            self.end(next(iter(self._open.values())))
        made = Session(secrets.token_urlsafe(32), user, self._clock.monotonic() + self._session_s)
        self._open[made.session_id] = made
        return made

    def find(self, session_id: str | None) -> Session | None:
        found = self._open.get(session_id or "")
        if found is None:
            return None
        is_over = found.expires <= self._clock.monotonic()
        if is_over or (found.user is not None and not self._may_stay(found.user)):
            self.end(found)
            return None
        return found

    def end(self, session: Session) -> None:
        self._open.pop(session.session_id, None)
        self._notes.pop(session.session_id, None)

    def leave_note(self, session: Session, words: str) -> None:
        """Something to be said on the next page: what was done."""
        self._notes[session.session_id] = words

    def take_note(self, session: Session) -> str:
        return self._notes.pop(session.session_id, "")

    def token(self, session: Session) -> str:
        return hmac.new(self._key, session.session_id.encode(), "sha256").hexdigest()

    def is_token(self, session: Session, token: str) -> bool:
        return hmac.compare_digest(self.token(session).encode(), token.encode())

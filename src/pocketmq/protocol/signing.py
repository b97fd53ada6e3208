"""ACL signatures of requests.

    AccessKey, SecurityToken? ── added ──► all ext values, ordered by name as in Java ── + body ──► HMAC-SHA1(secret) ── base64 ──► Signature

The server signs the received fields and compares, so the signature is added last, after all other ext fields.
"""

import base64
import hmac
from collections.abc import Mapping

import msgspec

from pocketmq.codes import VERSION, Version
from pocketmq.errors import InvalidSetting
from pocketmq.model.queue import java_sorted

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105
SIGNATURE = "Signature"
SECRET_VARIABLE = "ROCKETMQ_SECRET_KEY"  # noqa: S105 the name of it

_ADDED_AFTER_SIGNING = "_UNIQUE_KEY_QUERY"
"""A field of QUERY_MESSAGE that clients up to 4.9.3 add after signing."""


class Credentials(msgspec.Struct, frozen=True):
    """The keys of a client. `repr` omits the secret."""

    access_key: str
    secret: str
    security_token: str | None = None

    def __repr__(self) -> str:
        return f"Credentials(access_key={self.access_key!r})"


def credentials_of(access_key: str | None, environ: Mapping[str, str]) -> Credentials | None:
    """The account of `--access-key`, with the secret from the environment."""
    if access_key is None:
        return None
    secret = environ.get(SECRET_VARIABLE)
    if not secret:
        raise InvalidSetting(f"--access-key needs the secret of {access_key!r} in the variable {SECRET_VARIABLE}")
    return Credentials(access_key, secret)


def signed_fields(ext: Mapping[str, str] | None, body: bytes, credentials: Credentials) -> dict[str, str]:
    """`ext` with access key and signature added. Keeps the order of the other fields."""
    signed = {**(ext or {}), ACCESS_KEY: credentials.access_key}
    if credentials.security_token is not None:
        signed[SECURITY_TOKEN] = credentials.security_token
    signed[SIGNATURE] = sign(signed, body, credentials.secret)
    return signed


def sign(ext: Mapping[str, str], body: bytes, secret: str, version: int = VERSION) -> str:
    """The signature of a request with otherwise complete ext fields."""
    return signature_of(signed_content(ext, body, version), secret).decode()


def signature_of(content: bytes, secret: str) -> bytes:
    """The signature of the bytes of `signed_content`."""
    return base64.b64encode(hmac.digest(secret.encode(), content, "sha1"))


def verify(ext: Mapping[str, str], body: bytes, secret: str, version: int = VERSION) -> bool:
    """Whether the request was signed with `secret`, compared in constant time. `version` is the sender's."""
    claimed = ext.get(SIGNATURE, "").encode(errors="replace")
    return hmac.compare_digest(claimed, sign(ext, body, secret, version).encode())


def signed_content(ext: Mapping[str, str], body: bytes, version: int = VERSION) -> bytes:
    """The bytes that a sender of `version` signs."""
    left_out = {SIGNATURE, _ADDED_AFTER_SIGNING} if version <= Version.V4_9_3 else {SIGNATURE}
    values = "".join([ext[name] for name in java_sorted([name for name in ext if name not in left_out])])
    return values.encode(errors="replace") + body  # Java too replaces an unpaired surrogate by a '?'

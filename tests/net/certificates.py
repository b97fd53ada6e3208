"""Certificates created with nothing but the standard library: an authority on P-256 and its certificates.

Enough of X.509 for a test on the loopback address. The arithmetic is slow and not secret: never use it for anything else.
"""

import base64
import hashlib
import random
from pathlib import Path
from typing import NamedTuple

# The curve P-256.
P = 2**256 - 2**224 + 2**192 + 2**96 - 1
N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
A = P - 3
G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)

SEQUENCE, SET, INTEGER, BITS, OCTETS, OID, UTF8, TIME, TRUE = (
    0x30,
    0x31,
    0x02,
    0x03,
    0x04,
    0x06,
    0x0C,
    0x18,
    b"\x01\x01\xff",
)
EC_KEY, CURVE, SIGNED_SHA256 = "1.2.840.10045.2.1", "1.2.840.10045.3.1.7", "1.2.840.10045.4.3.2"
COMMON_NAME, SUBJECT_KEY, KEY_USAGE, ALT_NAME, CONSTRAINTS, ISSUER_KEY = (
    "2.5.4.3",
    "2.5.29.14",
    "2.5.29.15",
    "2.5.29.17",
    "2.5.29.19",
    "2.5.29.35",
)

Point = tuple[int, int]


class Certificate(NamedTuple):
    """Paths of a certificate and its key, and the data to sign with it."""

    cert: Path
    key: Path
    name: str
    secret: int


def make_authority(folder: Path, name: str = "test authority") -> Certificate:
    secret = _secret(name)
    extensions = [
        _extension(CONSTRAINTS, _der(SEQUENCE, TRUE), critical=True),
        _extension(KEY_USAGE, _der(BITS, b"\x02\x04"), critical=True),  # may sign certificates
        _extension(SUBJECT_KEY, _der(OCTETS, _key_id(secret))),
    ]
    return _write(folder, name, secret, _certificate(name, secret, name, secret, extensions))


def make_certificate(
    folder: Path, authority: Certificate, name: str = "server", host: str = "127.0.0.1"
) -> Certificate:
    secret = _secret(name)
    address = _der(0x87, bytes(int(part) for part in host.split(".")))
    extensions = [
        _extension(CONSTRAINTS, _der(SEQUENCE), critical=True),
        _extension(KEY_USAGE, _der(BITS, b"\x07\x80"), critical=True),  # may sign a handshake
        _extension(ALT_NAME, _der(SEQUENCE, address)),
        _extension(SUBJECT_KEY, _der(OCTETS, _key_id(secret))),
        _extension(ISSUER_KEY, _der(SEQUENCE, _der(0x80, _key_id(authority.secret)))),
    ]
    return _write(folder, name, secret, _certificate(name, secret, authority.name, authority.secret, extensions))


def _certificate(name: str, secret: int, issuer: str, issuer_secret: int, extensions: list[bytes]) -> bytes:
    signed_with = _der(SEQUENCE, _oid(SIGNED_SHA256))
    key_kind = _der(SEQUENCE, _oid(EC_KEY), _oid(CURVE))
    content = _der(
        SEQUENCE,
        _der(0xA0, _integer(2)),  # version 3
        _integer(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") | 1),
        signed_with,
        _name(issuer),
        _der(SEQUENCE, _der(TIME, b"20200101000000Z"), _der(TIME, b"20991231235959Z")),
        _name(name),
        _der(SEQUENCE, key_kind, _der(BITS, b"\0" + _public(secret))),
        _der(0xA3, _der(SEQUENCE, *extensions)),
    )
    return _der(SEQUENCE, content, signed_with, _der(BITS, b"\0" + _signature(content, issuer_secret)))


def _write(folder: Path, name: str, secret: int, certificate: bytes) -> Certificate:
    key = _der(
        SEQUENCE,
        _integer(1),
        _der(OCTETS, secret.to_bytes(32, "big")),
        _der(0xA0, _oid(CURVE)),
        _der(0xA1, _der(BITS, b"\0" + _public(secret))),
    )
    stem = folder / name.replace(" ", "-")
    made = Certificate(stem.with_suffix(".crt"), stem.with_suffix(".key"), name, secret)
    made.cert.write_text(_pem("CERTIFICATE", certificate))
    made.key.write_text(_pem("EC PRIVATE KEY", key))
    return made


def _pem(label: str, data: bytes) -> str:
    return f"-----BEGIN {label}-----\n{base64.encodebytes(data).decode()}-----END {label}-----\n"


def _secret(name: str) -> int:
    return random.Random(name).randrange(1, N)


def _public(secret: int) -> bytes:
    x, y = _times(secret, G)
    return b"\x04" + x.to_bytes(32, "big") + y.to_bytes(32, "big")


def _key_id(secret: int) -> bytes:
    return hashlib.sha1(_public(secret)).digest()


def _signature(content: bytes, secret: int) -> bytes:
    digest = hashlib.sha256(content).digest()
    nonce = random.Random(digest).randrange(1, N)
    r = _times(nonce, G)[0] % N
    s = pow(nonce, -1, N) * (int.from_bytes(digest, "big") + r * secret) % N
    return _der(SEQUENCE, _integer(r), _integer(s))


def _times(factor: int, point: Point) -> Point:
    total: Point | None = None
    while factor:
        if factor & 1:
            total = point if total is None else _plus(total, point)
        point = _plus(point, point)
        factor >>= 1
    assert total is not None
    return total


def _plus(a: Point, b: Point) -> Point:
    slope = (3 * a[0] * a[0] + A) * pow(2 * a[1], -1, P) if a == b else (b[1] - a[1]) * pow(b[0] - a[0], -1, P)
    x = (slope * slope - a[0] - b[0]) % P
    return x, (slope * (a[0] - x) - a[1]) % P


def _extension(oid: str, value: bytes, *, critical: bool = False) -> bytes:
    return _der(SEQUENCE, _oid(oid), TRUE if critical else b"", _der(OCTETS, value))


def _name(text: str) -> bytes:
    return _der(SEQUENCE, _der(SET, _der(SEQUENCE, _oid(COMMON_NAME), _der(UTF8, text.encode()))))


def _integer(value: int) -> bytes:
    return _der(INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _oid(text: str) -> bytes:
    first, second, *rest = map(int, text.split("."))
    content = bytes([40 * first + second])
    for part in rest:
        digits = [part & 0x7F]
        while part := part >> 7:
            digits.append(part & 0x7F | 0x80)
        content += bytes(reversed(digits))
    return _der(OID, content)


def _der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    if size < 128:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content

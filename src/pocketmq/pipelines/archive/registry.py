"""A small client of a schema registry with Confluent's interface.

    body:  00  00 00 00 2a  …          a zero, the id of the schema in four bytes, then Avro or Protobuf

    GET /subjects/orders-value/versions/latest[?format=serialized]        {"id": 42, "schemaType": "AVRO", "schema": "…"}
    GET /schemas/ids/42                                                   the same without the id

A registry that does not answer fails the batch, which Spark runs again: its rows are no dead letters. An unknown id makes one.
"""

from base64 import b64encode
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec

from pocketmq.errors import InvalidSetting, NetworkError

MAGIC_BYTES: Final = 5
"""The bytes before the body: a zero, and the id."""
TIMEOUT_S: Final = 10.0
MAX_ANSWER_BYTES: Final = 8 * 1024 * 1024
_NOT_FOUND: Final = 404
_OK: Final = 200

_SHOWN_CHARS: Final = 120


class BadBody(Exception):
    """A body that does not fit its schema. The text is the reason in the dead letter."""


def bad_body(kind: str, error: BaseException) -> BadBody:
    """A BadBody for an error of a library."""
    text = str(error).strip().partition("\n")[0][:_SHOWN_CHARS]
    return BadBody(f"the body is not {kind} of this schema: {text or type(error).__name__}")


class Reference(msgspec.Struct, frozen=True):
    """Another schema that a schema imports."""

    subject: str
    version: int
    name: str = ""


class Subject(msgspec.Struct, frozen=True, rename="camel"):
    """A schema of a registry."""

    schema: str
    schema_type: str = "AVRO"
    references: tuple[Reference, ...] = ()

    @property
    def kind(self) -> str:
        return self.schema_type.upper()

    @property
    def text(self) -> str:
        return self.schema


def schema_id(value: bytes) -> int:
    """The id of the schema that a body was written with; BadBody for a body without one."""
    if len(value) < MAGIC_BYTES or value[0] != 0:
        raise BadBody("the body does not begin with the id of a schema, as a registry's serializers write it")
    return int.from_bytes(value[1:MAGIC_BYTES], "big")


class Registry(NamedTuple):
    """A registry at an address. Tasks get a copy."""

    address: str
    authorization: str | None = None
    """`user:password`."""

    def latest(self, subject: str) -> Subject:
        """The latest schema of a subject; InvalidSetting if there is none."""
        path = f"/subjects/{quote(subject, safe='')}/versions/latest"
        found = self._get(path)
        if found is None:
            raise InvalidSetting(f"the registry {self.address} has no subject {subject}")
        return self._serialized(path) if found.kind == "PROTOBUF" else found

    def schema(self, number: int, kind: str) -> Subject:
        """The schema with this id; BadBody if the registry does not have it, or has it in another format."""
        found = self._get(f"/schemas/ids/{number}")
        if found is None:
            raise BadBody(f"the registry has no schema with the id {number}")
        if found.kind != kind:
            raise BadBody(f"the schema with the id {number} is {found.kind}, not {kind}")
        return found

    def references(self, subject: Subject) -> list[str]:
        """The texts of all schemas that a schema imports, in an order in which each follows those it imports itself."""
        texts: list[str] = []
        for one in subject.references:
            found = self._serialized(f"/subjects/{quote(one.subject, safe='')}/versions/{one.version}")
            texts += [text for text in (*self.references(found), found.text) if text not in texts]
        return texts

    def _serialized(self, path: str) -> Subject:
        found = self._get(f"{path}?format=serialized")
        if found is None:
            raise InvalidSetting(f"the registry {self.address} does not have {path}")
        return found

    def _get(self, path: str) -> Subject | None:
        """None for an unknown schema."""
        parts = urlsplit(self.address)
        connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if self.authorization is not None:
            headers["Authorization"] = f"Basic {b64encode(self.authorization.encode()).decode()}"
        connection = connect(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
        try:
            connection.request("GET", f"{parts.path.rstrip('/')}{path}", headers=headers)
            answer = connection.getresponse()
            data = answer.read(MAX_ANSWER_BYTES)
        except (OSError, HTTPException) as error:
            raise NetworkError(
                f"the schema registry {self.address} does not respond: {error}; check its address"
            ) from None
        finally:
            connection.close()
        if answer.status == _NOT_FOUND:
            return None
        if answer.status != _OK:
            raise NetworkError(
                f"the schema registry {self.address} answered {answer.status} {answer.reason} to {path}; a registry with passwords "
                "needs SCHEMA_REGISTRY_AUTH=user:password"
            )
        try:
            return msgspec.json.decode(data, type=Subject)
        except msgspec.MsgspecError as error:
            raise NetworkError(f"the answer of the schema registry {self.address} is not a schema: {error}") from None

"""The JSON header: written as Java writes it, read more generously."""

import json

import pytest

from pocketmq.codes import Language
from pocketmq.errors import ProtocolError, UsageError
from pocketmq.protocol.fields import MAX_EXT_FIELDS, Header
from pocketmq.protocol.header_encodings import decode_json as decode
from pocketmq.protocol.header_encodings import encode_json as encode

ROUTE_QUERY: Header = (105, {"topic": "TBW102"}, None, 0, 2, 479, Language.JAVA)


def test_keys_are_written_in_order_without_blanks_and_absent_values() -> None:
    assert encode(ROUTE_QUERY) == (
        b'{"code":105,"extFields":{"topic":"TBW102"},"flag":0,"language":"JAVA","opaque":2,'
        b'"serializeTypeCurrentRPC":"JSON","version":479}'
    )
    assert encode((17, None, 'no "x"\n', 1, -2, 0, Language.NODE_JS)) == (
        b'{"code":17,"flag":1,"language":"NODE_JS","opaque":-2,"remark":"no \\"x\\"\\n",'
        b'"serializeTypeCurrentRPC":"JSON","version":0}'
    )


def test_no_ext_fields_and_empty_ones_are_distinguished() -> None:
    assert b'"extFields":{}' in encode((0, {}, None, 1, 0, 479, Language.JAVA))
    assert b"extFields" not in encode((0, None, None, 1, 0, 479, Language.JAVA))
    assert decode(b'{"code":0,"extFields":{}}')[1] == {}
    assert decode(b'{"code":0,"extFields":null}')[1] is None
    assert decode(b'{"code":0}')[1] is None


def test_any_order_blanks_and_unknown_keys_are_read() -> None:
    header = b' { "version" : 479, "later": [{"a": 1.5}], "extFields": {"topic": "TBW102"}, "opaque": 2, "code": 105,\n "language": "JAVA" } '

    assert decode(header) == ROUTE_QUERY


def test_a_header_only_needs_a_code() -> None:
    assert decode(b'{"code":105}') == (105, None, None, 0, 0, 0, Language.OTHER)


def test_numbers_and_booleans_as_ext_values_are_read_as_their_text() -> None:
    header = (
        b'{"code":310,"extFields":{"d":1,"g":1700000000123,"x":-1.50,"m":false,"k":true,"a":"\\u4e2d","none":null}}'
    )

    assert decode(header)[1] == {"d": "1", "g": "1700000000123", "x": "-1.50", "m": "false", "k": "true", "a": "中"}


def test_texts_as_numbers_are_read_as_the_number() -> None:
    header = b'{"code":"105","extFields":{"topic":"TBW102"},"flag":"0","language":"JAVA","opaque":"2","version":"479"}'

    assert decode(header) == ROUTE_QUERY


@pytest.mark.parametrize(
    ("written", "language"),
    [
        ('"JAVA"', Language.JAVA),
        ('"GO"', Language.GO),
        ("9", Language.GO),
        ('"COBOL"', Language.OTHER),
        ("99", Language.OTHER),
        ("-1", Language.OTHER),
        ("null", Language.OTHER),
    ],
)
def test_a_language_may_be_a_name_or_a_number(written: str, language: Language) -> None:
    assert decode(b'{"code":1,"language":%b}' % written.encode())[6] is language


@pytest.mark.parametrize("language", Language)
def test_every_language_is_preserved(language: Language) -> None:
    assert decode(encode((1, None, None, 0, 0, 0, language)))[6] is language


def test_ext_fields_are_limited_in_number() -> None:
    most = {f"n{n}": "v" for n in range(MAX_EXT_FIELDS)}
    assert decode(json.dumps({"code": 1, "extFields": most}).encode())[1] == most

    for value in ("v", 1):
        more = json.dumps({"code": 1, "extFields": {**most, "one": value}}).encode()
        with pytest.raises(ProtocolError, match="513 ext fields; the limit is 512"):
            decode(more)


@pytest.mark.parametrize(
    "opening", [b'{"code":1,"x":' + b"[" * 200_000, b'{"code":1,"extFields":{"a":' + b'{"a":' * 100_000]
)
def test_deep_nesting_is_refused(opening: bytes) -> None:
    with pytest.raises(ProtocolError, match="nested deeper than the interpreter's recursion limit"):
        decode(opening)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"opaque":1}',
        b'{"code":"two"}',
        b'{"code":true}',
        b'{"code":1.5}',
        b'{"code":2147483648}',
        b'{"code":1,"opaque":-2147483649}',
        b'{"code":1,"version":99999999999999999999999}',
        b'{"code":1,"flag":null}',
        b'{"code":1,"remark":5}',
        b'{"code":1,"extFields":[]}',
        b'{"code":1,"extFields":{"a":"\xff"}}',
        b'{"code":1,"extFields":{"a":["\xff"]}}',
        b'{"code":1,"extFields":{"a":1,"b":"\\ud800"}}',
        b'{"code":1} {"code":2}',
        b'{"code":' + b"1" * 5000 + b"}",
    ],
)
def test_an_invalid_header_is_a_protocol_error(header: bytes) -> None:
    with pytest.raises(ProtocolError, match="JSON header: "):
        decode(header)


def test_half_of_a_surrogate_pair_is_refused_before_it_is_sent() -> None:
    with pytest.raises(UsageError, match="an unpaired surrogate"):
        encode((1, {"key": "\udcff"}, None, 0, 0, 0, Language.JAVA))

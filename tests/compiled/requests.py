"""Requests of all sorts as a stranger may write them, for tests that compare the twins.

Most are sends that a client could send; the rest is unusual in one way or another, or wrong.
"""

import json

from hypothesis import strategies as st

from pocketmq.protocol.batch import encode_batch
from pocketmq.protocol.frames import join_frame

SEND, BATCH, PULL, MAX_OFFSET, UNKNOWN = 310, 320, 11, 30, 9999

PROPERTIES = (
    "UNIQ_KEY\x017F00000100012A139A5514E1B2C300A1",
    "UNIQ_KEY\x01id \x7f",
    'UNIQ_KEY\x01"\\',
    "UNIQ_KEY\x01é😀",
    "UNIQ_KEY\x01",
    "UNIQ_KEY",
    "XUNIQ_KEY\x01no",
    "TAGS\x01A",
    "TAGS\x01",
    "TAGS\x01中文😀",
    "XTAGS\x01A",
    "KEYS\x01k1 k2  k3",
    "KEYS\x01ключ",
    "WAIT\x01true",
    "WAIT\x01false",
    "DELAY\x011",
    "DELAY\x01x",
    "MODEL\x01m",
    "TIMER_DELAY_SEC\x015",
    "TRAN_MSG\x01true",
    "POP_CK\x010",
    "zero\x01\0",
    'text\x01a\nb\t/\\"\x08',
    "\x01\x01",
    "",
)
USUAL = "UNIQ_KEY\x017F00000100012A139A5514E1B2C300A1\x02WAIT\x01true\x02TAGS\x01A\x02"

properties = st.one_of(
    st.just(USUAL),
    st.lists(st.sampled_from(PROPERTIES), max_size=4).map("\x02".join),
    st.lists(st.sampled_from(PROPERTIES), max_size=4).map(lambda parts: USUAL + "\x02".join(parts)),
    st.text(st.characters(codec="utf-8"), max_size=20),
)
bodies = st.one_of(st.binary(min_size=1, max_size=60), st.integers(0, 9000).map(bytes))
numbers = st.one_of(
    st.integers(-3, 9).map(str),
    st.sampled_from(["-0", "+1", "007", "2147483647", "2147483648", "-2147483648", "1e3", "1.0", "", " 1", "9" * 19]),
)


def _dumped(value: object, spaced: bool, ascii_only: bool) -> str:
    return json.dumps(value, ensure_ascii=ascii_only, separators=(", ", ": ") if spaced else (",", ":"))


@st.composite
def heads(draw: st.DrawFn, code: int, ext: dict[str, object]) -> bytes:
    """The JSON header of a request, mostly as clients write it."""
    members: list[tuple[str, object]] = [
        ("code", code),
        ("extFields", ext),
        ("flag", draw(st.sampled_from([0, 0, 0, 0, 2, 1, 4, "0"]))),
        ("language", draw(st.sampled_from(["JAVA", "JAVA", "GO", 7, "é", None]))),
        ("opaque", draw(st.one_of(st.integers(-5, 99), st.integers(2**31 - 9, 2**31 - 1)))),
        ("serializeTypeCurrentRPC", "JSON"),
        ("version", draw(st.sampled_from([479, 0, -1, "479"]))),
    ]
    if draw(st.integers(0, 9)) == 0:
        members.append(draw(st.sampled_from([("remark", "r"), ("flag", 0), ("other", {"a": [1]}), ("remark", None)])))
    if draw(st.integers(0, 9)) == 0:
        members = draw(st.permutations(members))
    spaced, ascii_only = draw(st.integers(0, 9)) == 0, draw(st.booleans())
    comma, colon = (", ", ": ") if spaced else (",", ":")
    text = comma.join(f'"{name}"{colon}{_dumped(value, spaced, ascii_only)}' for name, value in members)
    return f"{{{text}}}".encode("utf-8", "surrogatepass")


@st.composite
def send_fields(draw: st.DrawFn) -> dict[str, object]:
    """Ext fields of a send; now and then one is strange, missing, or one too many."""
    fields: dict[str, object] = {
        "a": "PG",
        "b": draw(st.sampled_from(["T", "T", "T", "U", "New", "%RETRY%G", "bad*topic", "SCHEDULE_TOPIC_XXXX", "é"])),
        "c": "TBW102",
        "d": "4",
        "e": draw(st.sampled_from(["0", "1", "2", "3", "3", "4", "-1", "00"])),
        "f": draw(st.sampled_from(["0", "0", "0", "1", "4", "8", "12", "48", "192", "768", "-1"])),
        "g": "1700000000123",
        "h": draw(st.sampled_from(["0", "7", "-1"])),
        "i": draw(properties),
        "j": draw(st.sampled_from(["0", "3"])),
        "k": "false",
        "m": "false",
        "n": "broker-a",
    }
    if draw(st.integers(0, 4)) == 0:
        name = draw(st.sampled_from([*"abcdefghijklmnop", "ns"]))
        fields[name] = draw(
            st.one_of(numbers, st.sampled_from(["true", "TRUE", "x", None, 5, True, "\u0001", "\ud800"]))
        )
    if draw(st.integers(0, 9)) == 0:
        del fields[draw(st.sampled_from(sorted(fields)))]
    return fields


items = st.lists(
    st.tuples(
        st.sampled_from([0, 1, -1]),
        st.binary(max_size=40),
        st.one_of(properties.map(lambda text: text.encode("utf-8", "replace")), st.binary(max_size=20)),
    ),
    max_size=6,
)


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """One complete frame."""
    kind = draw(st.sampled_from([SEND, SEND, SEND, SEND, SEND, BATCH, PULL, MAX_OFFSET, UNKNOWN]))
    if kind == SEND:
        return join_frame(0, draw(heads(SEND, draw(send_fields()))), draw(bodies))
    if kind == BATCH:
        body = encode_batch(draw(items))
        return join_frame(0, draw(heads(BATCH, draw(send_fields()))), draw(st.one_of(st.just(body), damaged(body))))
    if kind == PULL:
        fields: dict[str, object] = {
            "consumerGroup": "G",
            "topic": draw(st.sampled_from(["T", "U", "Gone"])),
            "queueId": draw(st.sampled_from(["0", "1", "03", "9"])),
            "queueOffset": draw(st.sampled_from(["0", "1", "007", "-1", "900"])),
            "maxMsgNums": draw(st.sampled_from(["32", "1", "0"])),
            "sysFlag": draw(st.sampled_from(["4", "0", "5"])),
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subVersion": "0",
            "subscription": draw(st.sampled_from(["*", "A", "A || B", "a = '"])),
            "expressionType": draw(st.sampled_from(["TAG", "SQL92"])),
        }
        return join_frame(0, draw(heads(PULL, fields)))
    return join_frame(0, draw(heads(kind, {"topic": "T", "queueId": "1"})))


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """The same bytes, with some of them changed, removed or inserted."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(changed) - 1)))
        changed[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return bytes(changed)


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """What a client writes, cut anywhere. At its end there may be rubbish."""
    whole = draw(st.lists(frames(), min_size=1, max_size=12))
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(whole) - 1))
        header_damaged = draw(damaged(whole[at][8:]))
        whole[at] = join_frame(0, header_damaged) if draw(st.booleans()) else draw(damaged(whole[at]))
    data = b"".join(whole)
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=4)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]

"""Bits that travel as integers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.codes import Compression, Perm, PullFlag, SysFlag, TransactionState, perm_text
from pocketmq.errors import ProtocolError
from pocketmq.protocol.compression import compression_of, with_compression

INT32 = st.integers(0, 2**31 - 1)


@pytest.mark.parametrize(
    ("sys_flag", "expected"),
    [
        (0x0, None),
        (0x300, None),
        (0x1, Compression.ZLIB),
        (0x301, Compression.ZLIB),
        (0x101, Compression.LZ4),
        (0x201, Compression.ZSTD),
        (0x30D, Compression.ZLIB),
    ],
)
def test_the_type_bits_count_only_with_the_compressed_bit(sys_flag: int, expected: Compression | None) -> None:
    assert compression_of(sys_flag) is expected


@pytest.mark.parametrize("kind", [4, 5, 6, 7])
def test_an_unknown_compression_is_refused(kind: int) -> None:
    with pytest.raises(ProtocolError, match=f"unknown compression type {kind}"):
        compression_of(kind << 8 | SysFlag.COMPRESSED)


@given(INT32, st.sampled_from(Compression))
def test_a_compression_is_found_among_other_bits(sys_flag: int, compression: Compression) -> None:
    marked = with_compression(sys_flag, compression)

    assert compression_of(marked) is compression
    others = ~(SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK)
    assert marked & others == sys_flag & others


def test_the_default_client_marks_zlib_as_java_does() -> None:
    assert with_compression(0, Compression.ZLIB) == 0x301


def test_the_bits_of_sys_flag_have_their_values() -> None:
    bits = [SysFlag.COMPRESSED, SysFlag.MULTI_TAGS, SysFlag.BORN_HOST_V6, SysFlag.STORE_HOST_V6]

    assert bits == [0x1, 0x2, 0x10, 0x20]
    assert (SysFlag.NEED_UNWRAP, SysFlag.INNER_BATCH) == (0x40, 0x80)


def test_a_transactions_end_is_the_transaction_bits_of_sys_flag() -> None:
    assert TransactionState.COMMIT == SysFlag.TRANSACTION_COMMIT == 8
    assert TransactionState.ROLLBACK == SysFlag.TRANSACTION_ROLLBACK == SysFlag.TRANSACTION_MASK == 12
    assert SysFlag.TRANSACTION_PREPARED | SysFlag.TRANSACTION_COMMIT == SysFlag.TRANSACTION_MASK
    assert TransactionState(0) is TransactionState.UNKNOWN


def test_a_lite_pull_has_the_flags_for_suspend_and_subscription() -> None:
    assert PullFlag.SUSPEND | PullFlag.SUBSCRIPTION | PullFlag.LITE_PULL == 22
    assert (PullFlag.COMMIT_OFFSET, PullFlag.CLASS_FILTER) == (1, 8)


@pytest.mark.parametrize(
    ("perm", "text"),
    [(0, "---"), (Perm.READ, "R--"), (Perm.WRITE, "-W-"), (Perm.READ_WRITE, "RW-"), (7, "RWX"), (1, "--X")],
)
def test_a_permission_is_printed_as_by_mqadmin(perm: int, text: str) -> None:
    assert perm_text(perm) == text


def test_read_and_write_make_6() -> None:
    assert Perm.READ_WRITE == 6

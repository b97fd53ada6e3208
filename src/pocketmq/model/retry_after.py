"""Retry-after: a broker that refuses for now says in its remark when to come back.

    [TIMEOUT_CLEAN_QUEUE]broker busy, … retry after: 120ms

The words before it are RocketMQ's, which clients of other kinds look for; the end is ours, and those do not mind it.
"""

import re

_RETRY_AFTER = re.compile(r"retry after: (\d{1,9})ms\s*$")


def with_retry_after(remark: str, wait_ms: int) -> str:
    """The remark of a refusal that makes sense to repeat in `wait_ms`."""
    return f"{remark} retry after: {max(0, wait_ms)}ms"


def retry_after_ms(remark: str | None) -> int | None:
    """When to come back, if the remark says so."""
    found = _RETRY_AFTER.search(remark) if remark else None
    return int(found[1]) if found else None

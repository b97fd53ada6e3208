"""What settings of a store cannot bring about."""

import pytest
from tests.store.open_store import OpenStore

from pocketmq.errors import InvalidMessage
from pocketmq.model.properties import MAX_BYTES
from pocketmq.protocol.frames import DEFAULT_LIMITS
from pocketmq.store.settings import KIB, MAX_ANSWER_BYTES


def test_a_body_that_no_answer_could_carry_is_refused_whatever_is_set() -> None:
    opened = OpenStore.small(max_message_bytes=10**9, log_file_bytes=2**25, prepared_files=1)
    topic, properties = "t" * 127, "n\x01" + "v" * (MAX_BYTES - 3) + "\x02"

    with pytest.raises(InvalidMessage, match=f"the limit is what fits into the answer to a pull = {MAX_ANSWER_BYTES}"):
        opened.stage(bytes(MAX_ANSWER_BYTES + 1))

    opened.send(bytes(MAX_ANSWER_BYTES), topic=topic, properties=properties)
    assert opened.store.read(topic, 0, 0, 1).size < DEFAULT_LIMITS.frame_bytes - KIB

"""From a record to its queue entry: what the log says decides what the derived files hold.

The same rules run when a message is stored and when a queue is rebuilt, so both give the same entries.
"""

from typing import Final

from pocketmq.model.delay import DelayLevels
from pocketmq.model.flags import SysFlag
from pocketmq.model.java_hash import java_hash
from pocketmq.model.properties import raw_property

KNOWN_TAGS: Final = 4096
LONGEST_KNOWN_TAG: Final = 64
"""Tags are few, short and come again. One that is long is somebody's data, and remembering thousands would take memory."""
_known_codes: dict[bytes, int] = {}
_MAX_INT: Final = 2**31 - 1


def enters_queue(sys_flag: int) -> bool:
    """Prepared and rolled-back transaction records stay in the log alone."""
    return not sys_flag & SysFlag.TRANSACTION_PREPARED


def tags_code_of(raw_properties: bytes, is_delay: bool, store_ms: int, levels: DelayLevels) -> int:
    """The tags code of a queue entry: the tag's hash; in the delay topic, when the message is due."""
    if is_delay:
        level = delay_level_of(raw_properties)
        if level > 0:
            return levels.due_ms(level, store_ms)
    # What `raw_property` does, at half the price: this runs once per message.
    at = raw_properties.rfind(b"TAGS\x01")
    if at < 0:
        return 0
    if at and raw_properties[at - 1] != 2:  # the end of a longer name
        return _code_of_tag(raw_property(raw_properties, b"TAGS") or b"")
    end = raw_properties.find(b"\x02", at)
    tag = raw_properties[at + 5 : end] if end >= 0 else raw_properties[at + 5 :]
    code = _known_codes.get(tag)
    return _code_of_tag(tag) if code is None else code


def delay_level_of(raw_properties: bytes) -> int:
    """The delay level, 0 when there is none that means anything."""
    text = (raw_property(raw_properties, b"DELAY") or b"").removeprefix(b"+")
    level = int(text) if text.isdigit() and len(text) <= len(str(_MAX_INT)) else 0
    return level if level <= _MAX_INT else 0


def _code_of_tag(tag: bytes) -> int:
    code = java_hash(tag.decode("utf-8", "replace"))
    if len(tag) <= LONGEST_KNOWN_TAG:
        if len(_known_codes) >= KNOWN_TAGS:
            _known_codes.clear()
        _known_codes[tag] = code
    return code

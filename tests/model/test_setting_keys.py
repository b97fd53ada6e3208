"""Settings by name, with a small test program: they are read, listed, and changed only if that is allowed."""

from pathlib import Path

import msgspec
import pytest

from pocketmq.errors import InvalidParameter, InvalidSetting, NoPermission
from pocketmq.model.setting_keys import NUMBER, PATH, REFUSED, SWITCH, TEXT, Constant, Key, SettingKeys


class Inner(msgspec.Struct, frozen=True):
    size: int = 1

    def __post_init__(self) -> None:
        if not self.size:
            raise InvalidSetting("size = 0 must be above 0")


class Lamp(msgspec.Struct, frozen=True):
    name: str = "lamp"
    folder: Path | None = None
    lit: bool = False
    inner: Inner = Inner()


KEYS = SettingKeys[Lamp](
    "lamp",
    {
        "lampName": Key("name", TEXT),
        "lampFolder": Key("folder", PATH),
        "lampLit": Key("lit", SWITCH, at_run_time=True),
        "lampSize": Key("inner.size", NUMBER, at_run_time=True),
    },
    without_effect={"lampColour": "it is always white"},
    constants={"lampKind": Constant("bulb", "there is no other kind")},
)


def test_parsed_keys_replace_fields_of_nested_settings() -> None:
    read = KEYS.read({"lampName": "desk", "lampSize": " 7 "}, Lamp(lit=True))

    assert read == (Lamp("desk", None, True, Inner(7)), [])


def test_written_keys_can_be_read_again() -> None:
    settings = Lamp("desk", Path("drawer"), True, Inner(7))

    told = KEYS.write(settings)

    assert told == {
        "lampName": "desk",
        "lampFolder": "drawer",
        "lampLit": "true",
        "lampSize": "7",
        "lampKind": "bulb",
    }
    assert KEYS.read(told, Lamp()) == (settings, [])


def test_a_missing_value_is_not_written() -> None:
    assert "lampFolder" not in KEYS.write(Lamp())


@pytest.mark.parametrize(
    ("name", "warning"),
    [
        ("lampColour", "lampColour has no effect here: it is always white"),
        ("lampKinds", "lampKinds is not known; did you mean lampKind?"),
        ("xyz", "xyz is not known"),
        ("campTint", "campTint is not known"),
        ("x" * 5_000_000, "x" * 80 + " is not known"),
    ],
    ids=["without effect", "near a constant", "unknown", "hardly like a constant", "very long"],
)
def test_a_key_without_effect_is_reported_in_a_sentence(name: str, warning: str) -> None:
    assert KEYS.read({name: "1"}, Lamp()) == (Lamp(), [warning])


@pytest.mark.parametrize("name", ["lampSise", "lampsize", "lampSizes"])
def test_a_key_that_is_almost_a_setting_is_refused(name: str) -> None:
    with pytest.raises(InvalidSetting, match=f"{name} is not known; did you mean lampSize"):
        KEYS.read({name: "1"}, Lamp())


def test_a_constant_key_accepts_only_its_value() -> None:
    assert KEYS.read({"lampKind": "BULB "}, Lamp()) == (Lamp(), [])
    with pytest.raises(InvalidSetting) as refusal:
        KEYS.read({"lampKind": "tube"}, Lamp())

    assert str(refusal.value) == (
        "lampKind=tube is not supported: there is no other kind. Use lampKind=bulb, or remove it"
    )


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("lampSize", "", "lampSize= is not a whole number"),
        ("lampSize", "-1", "lampSize=-1 is not a whole number"),
        ("lampSize", "²", "lampSize=² is not a whole number"),
        ("lampSize", "0", "lampSize: size = 0 must be above 0"),
        ("lampSize", "9223372036854775808", "is not a number up to 9223372036854775807"),
        ("lampSize", "9" * 5000, "is not a number up to 9223372036854775807"),
        ("lampLit", "yes", "lampLit=yes is not true or false"),
        ("lampFolder", "", "lampFolder= is not a path"),
        ("lampFolder", "a\0b", "is not a path"),
    ],
)
def test_an_impossible_value_is_refused(name: str, text: str, why: str) -> None:
    with pytest.raises(InvalidSetting, match=why):
        KEYS.read({name: text}, Lamp())


def test_changeable_keys_change_at_run_time() -> None:
    assert KEYS.change(Lamp(), {"lampLit": "true", "lampSize": "2"}) == Lamp(lit=True, inner=Inner(2))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("lampName", "lampName can only be set when the lamp starts"),
        ("lampFolder", "lampFolder can only be set when the lamp starts"),
        ("lampKind", "lampKind can only be set when the lamp starts: there is no other kind"),
        ("lampColour", "lampColour has no effect here: it is always white"),
        ("unheardOf", "unheardOf is not known"),
    ],
)
def test_one_key_that_may_not_change_refuses_all(name: str, why: str) -> None:
    with pytest.raises(NoPermission) as refusal:
        KEYS.change(Lamp(), {"lampLit": "true", name: "x"})

    assert refusal.value.remark == f"{REFUSED} {why}"


def test_a_change_to_an_impossible_value_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="size = 0"):
        KEYS.change(Lamp(), {"lampLit": "true", "lampSize": "0"})

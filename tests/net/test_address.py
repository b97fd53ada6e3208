"""Addresses, as texts have them."""

import pytest

from pocketmq.errors import InvalidSetting
from pocketmq.net.address import Address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("broker:10911", Address("broker", 10911)),
        ("10.0.0.1:10911", Address("10.0.0.1", 10911)),
        (" 127.0.0.1:0 ", Address("127.0.0.1", 0)),
        ("[::1]:9876", Address("::1", 9876)),
        ("[fe80::1%eth0]:9876", Address("fe80::1%eth0", 9876)),
        ("host:65535", Address("host", 65535)),
    ],
)
def test_a_text_is_parsed_as_host_and_port_and_formatted_unchanged(text: str, address: Address) -> None:
    assert Address.parse(text) == address
    assert str(address) == text.strip()


@pytest.mark.parametrize("text", ["broker", "[::1]"])
def test_the_port_may_be_omitted_if_there_is_a_default(text: str) -> None:
    assert Address.parse(text, default_port=9876).port == 9876
    assert Address.parse(text + ":10911", default_port=9876).port == 10911
    with pytest.raises(InvalidSetting, match="host:port"):
        Address.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        ":10911",
        "host:",
        "host:x",
        "host:-1",
        "host:65536",
        "host:1.5",
        "host:²",
        "[]:1",
        "[::1",
        "[::1]10911",
        "a b:1",
    ],
)
def test_an_invalid_address_is_refused_with_the_correct_form(text: str) -> None:
    with pytest.raises(InvalidSetting, match="host:port"):
        Address.parse(text)


def test_an_unclosed_bracket_does_not_select_the_default_port() -> None:
    with pytest.raises(InvalidSetting, match="host:port"):
        Address.parse("[::1", default_port=9876)


def test_ipv6_without_brackets_is_refused_because_its_port_is_ambiguous() -> None:
    with pytest.raises(InvalidSetting, match=r"\[::1\]:10911"):
        Address.parse("::1:9876")


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("LocalHost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("localhost.example", False),
    ],
)
def test_only_addresses_of_this_machine_are_loopback(host: str, is_loopback: bool) -> None:
    assert Address(host, 1).is_loopback == is_loopback


@pytest.mark.parametrize("text", ["9876", "9876:9876", "0"])
def test_a_number_is_not_a_host(text: str) -> None:
    with pytest.raises(
        InvalidSetting, match=rf"address '{text}' has the number \d+ as its host; write it as host:port"
    ):
        Address.parse(text, default_port=9876)


def test_a_url_is_refused_with_the_address_in_it() -> None:
    with pytest.raises(
        InvalidSetting, match=r"'http://localhost:9876/x' is a URL.*does not speak http; write 'localhost:9876'"
    ):
        Address.parse("http://localhost:9876/x", default_port=9876)

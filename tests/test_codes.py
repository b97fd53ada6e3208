"""The numbers, as the protocol's tables list them."""

from enum import IntEnum, StrEnum

import pytest

from pocketmq.codes import VERSION, BoundaryType, HeaderEncoding, Language, RequestCode, ResponseCode, Version

ENUMS: list[type[IntEnum | StrEnum]] = [RequestCode, ResponseCode, Language, HeaderEncoding, Version, BoundaryType]

REQUESTS_OF_A_JAVA_CLIENT = {
    "SEND_MESSAGE": 10,
    "PULL_MESSAGE": 11,
    "QUERY_CONSUMER_OFFSET": 14,
    "UPDATE_CONSUMER_OFFSET": 15,
    "SEARCH_OFFSET_BY_TIMESTAMP": 29,
    "GET_MAX_OFFSET": 30,
    "GET_MIN_OFFSET": 31,
    "HEART_BEAT": 34,
    "UNREGISTER_CLIENT": 35,
    "CONSUMER_SEND_MSG_BACK": 36,
    "END_TRANSACTION": 37,
    "GET_CONSUMER_LIST_BY_GROUP": 38,
    "CHECK_TRANSACTION_STATE": 39,
    "NOTIFY_CONSUMER_IDS_CHANGED": 40,
    "LOCK_BATCH_MQ": 41,
    "UNLOCK_BATCH_MQ": 42,
    "CHECK_CLIENT_CONFIG": 46,
    "GET_ROUTEINFO_BY_TOPIC": 105,
    "RESET_CONSUMER_CLIENT_OFFSET": 220,
    "GET_CONSUMER_RUNNING_INFO": 307,
    "CONSUME_MESSAGE_DIRECTLY": 309,
    "SEND_MESSAGE_V2": 310,
    "SEND_BATCH_MESSAGE": 320,
    "PUSH_REPLY_MESSAGE_TO_CLIENT": 326,
    "LITE_PULL_MESSAGE": 361,
}
RESPONSES_THAT_A_CLIENT_DECIDES_BY = {
    "SUCCESS": 0,
    "SYSTEM_ERROR": 1,
    "SYSTEM_BUSY": 2,
    "REQUEST_CODE_NOT_SUPPORTED": 3,
    "FLUSH_DISK_TIMEOUT": 10,
    "SLAVE_NOT_AVAILABLE": 11,
    "FLUSH_SLAVE_TIMEOUT": 12,
    "MESSAGE_ILLEGAL": 13,
    "SERVICE_NOT_AVAILABLE": 14,
    "NO_PERMISSION": 16,
    "TOPIC_NOT_EXIST": 17,
    "PULL_NOT_FOUND": 19,
    "PULL_RETRY_IMMEDIATELY": 20,
    "PULL_OFFSET_MOVED": 21,
    "QUERY_NOT_FOUND": 22,
    "SUBSCRIPTION_NOT_EXIST": 24,
    "SUBSCRIPTION_NOT_LATEST": 25,
    "SUBSCRIPTION_GROUP_NOT_EXIST": 26,
    "NO_BUYER_ID": 204,
    "NOT_IN_CURRENT_UNIT": 205,
    "FLOW_CONTROL": 215,
    "GO_AWAY": 1500,
}


@pytest.mark.parametrize("enum", ENUMS)
def test_names_have_different_numbers(enum: type[IntEnum | StrEnum]) -> None:
    assert list(enum.__members__) == [member.name for member in enum]


def test_requests_of_a_java_client_have_their_numbers() -> None:
    assert {name: RequestCode[name].value for name in REQUESTS_OF_A_JAVA_CLIENT} == REQUESTS_OF_A_JAVA_CLIENT


def test_responses_that_clients_depend_on_have_their_numbers() -> None:
    known = {name: ResponseCode[name].value for name in RESPONSES_THAT_A_CLIENT_DECIDES_BY}

    assert known == RESPONSES_THAT_A_CLIENT_DECIDES_BY


def test_pop_codes_do_not_fit_the_binary_header() -> None:
    pop = {code for code in RequestCode if code > 0x7FFF}

    assert pop == {code for code in RequestCode if 200_000 <= code < 201_000}
    assert RequestCode.POP_MESSAGE & 0xFFFF == 3442


def test_languages_are_numbered_in_the_order_of_the_binary_header() -> None:
    names = "JAVA CPP DOTNET PYTHON DELPHI ERLANG RUBY OTHER HTTP GO PHP OMS RUST NODE_JS"

    assert [language.name for language in sorted(Language)] == names.split()
    assert [language.value for language in sorted(Language)] == list(range(14))


def test_the_version_we_announce_is_the_newest_that_we_know() -> None:
    assert VERSION == 479
    assert max(Version) == VERSION


def test_versions_with_feature_changes_are_known() -> None:
    gates = {Version.V3_0_11: 37, Version.V3_4_9: 121, Version.V4_1_0_SNAPSHOT: 232, Version.V4_9_3: 399}

    assert all(version == number for version, number in gates.items())
    assert (Version.V3_0_7_SNAPSHOT, Version.V3_1_8_SNAPSHOT) == (28, 62)
    assert (Version.V4_9_4, Version.V4_9_7, Version.V5_0_0, Version.V5_3_1) == (401, 407, 413, 475)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("UPPER", "UPPER"), ("upper", "UPPER"), ("LOWER", "LOWER"), ("lower", "LOWER"), ("x", "LOWER")],
)
def test_every_boundary_except_upper_is_lower(text: str, expected: str) -> None:
    assert BoundaryType(text) == expected


def test_the_highest_byte_of_the_header_word_is_the_encoding() -> None:
    assert (HeaderEncoding.JSON, HeaderEncoding.ROCKETMQ) == (0, 1)

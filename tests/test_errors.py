"""One tree; every class knows its code, whether a retry may help, and whose fault it is."""

import copy
import inspect
import pickle
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq import errors
from pocketmq.codes import ResponseCode
from pocketmq.errors import (
    CallTimedOut,
    ConnectionLost,
    Fault,
    InvalidMessage,
    InvalidName,
    NetworkError,
    NoPermission,
    PocketMQError,
    RemoteError,
    StoreFull,
    SystemBusy,
    TooManyCalls,
    TopicNotFound,
    UsageError,
    WrongState,
    error_for,
    install_command,
)

CLASSES = [found for _, found in inspect.getmembers(errors, inspect.isclass) if issubclass(found, Exception)]
REMOTE = [found for found in CLASSES if issubclass(found, RemoteError) and found is not RemoteError]

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_is_in_the_tree_and_has_three_attributes(kind: type[PocketMQError]) -> None:
    assert issubclass(kind, PocketMQError)
    assert isinstance(kind.code, ResponseCode)
    assert kind.code is not ResponseCode.SUCCESS
    assert isinstance(kind.retriable, bool)
    assert isinstance(kind.fault, Fault)
    assert inspect.getdoc(kind)


def test_the_complete_tree_is_checked() -> None:
    assert len(CLASSES) > 30
    assert len(REMOTE) > 20


@pytest.mark.parametrize("kind", REMOTE)
def test_a_code_becomes_its_error(kind: type[RemoteError]) -> None:
    error = error_for(kind.code, "because")

    assert type(error) is kind
    assert error.response_code == kind.code
    assert error.remark == "because"
    assert str(error) == f"{kind.code.name} ({kind.code.value}): because"


def test_remote_errors_have_different_codes() -> None:
    assert len({kind.code for kind in REMOTE}) == len(REMOTE)


@pytest.mark.parametrize("code", [code for code in ResponseCode if code not in {kind.code for kind in REMOTE}])
def test_a_code_without_a_class_of_its_own_keeps_its_name(code: ResponseCode) -> None:
    error = error_for(code)

    assert type(error) is RemoteError
    assert str(error) == f"{code.name} ({code.value})"


@given(st.integers(-(2**31), 2**31 - 1), st.none() | st.text())
def test_any_code_becomes_an_error_that_keeps_code_and_remark(code: int, remark: str | None) -> None:
    error = error_for(code, remark)

    assert (error.response_code, error.remark) == (code, remark)
    assert str(code) in str(error)


def test_an_unknown_code_is_shown_as_a_number() -> None:
    assert str(error_for(31337)) == "response code 31337"
    assert str(error_for(31337, "odd")) == "response code 31337: odd"


def test_an_error_raised_by_a_server_needs_only_its_remark() -> None:
    error = TopicNotFound("topic T does not exist")

    assert error.response_code == 17
    assert str(error) == "TOPIC_NOT_EXIST (17): topic T does not exist"


@pytest.mark.parametrize(
    "error", [SystemBusy("wait"), error_for(31337, "odd"), StoreFull("no space"), CallTimedOut("3 s")]
)
def test_an_error_survives_a_copy_and_a_pickle(error: PocketMQError) -> None:
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)


def test_errors_also_inherit_from_pythons_exceptions() -> None:
    assert issubclass(UsageError, ValueError)
    assert issubclass(InvalidName, ValueError)
    assert issubclass(CallTimedOut, TimeoutError)
    assert issubclass(WrongState, RuntimeError)


def test_errors_of_network_and_load_are_retriable_and_errors_of_values_are_not() -> None:
    assert NetworkError.retriable
    assert ConnectionLost.retriable
    assert SystemBusy.retriable
    assert StoreFull.retriable
    assert not UsageError.retriable
    assert not InvalidMessage.retriable
    assert not RemoteError.retriable


def test_too_many_calls_is_a_fault_of_the_caller() -> None:
    assert issubclass(TooManyCalls, NetworkError)
    assert TooManyCalls.fault is Fault.CALLER


def test_an_unsigned_request_is_refused_with_advice() -> None:
    unsigned, other = NoPermission("username cannot be null.", 16), NoPermission("check signature failed.", 16)

    assert str(unsigned).startswith("NO_PERMISSION (16): username cannot be null. The request is not signed")
    assert str(unsigned).endswith("give the client an access key and its secret")
    assert str(other) == "NO_PERMISSION (16): check signature failed."


def test_the_command_for_an_extra_names_its_libraries_and_this_python() -> None:
    assert install_command("spark") == f"{sys.executable} -m pip install 'pyspark>=4.0' 'pyarrow>=18' 'numpy>=1.26'"


@pytest.mark.parametrize("extra", ["compression", "spark", "prometheus", "console", "otel"])
def test_the_libraries_of_an_extra_are_those_of_the_package(extra: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    nested = {"pocketmq[prometheus]": extras["prometheus"]}
    expected = [library for each in extras[extra] for library in nested.get(each, [each])]

    assert shlex.split(install_command(extra))[4:] == expected

"""An address of Spark that is wrong is reported in seconds, before Spark starts."""

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pocketmq.errors import InvalidSetting, NetworkError
from pocketmq.pipelines.core.sessions import check_master


def refuse(host: str, port: int) -> None:
    raise ConnectionRefusedError(111, "Connection refused")


def accept(host: str, port: int) -> None:
    """As the real one does where something listens."""


def only_second(host: str, port: int) -> None:
    if host == "h1":
        raise TimeoutError("timed out")


@pytest.mark.parametrize(
    "master",
    [
        None,
        "local",
        "local[*]",
        "local[2]",
        "local[2,3]",
        "local[*,4]",
        "local-cluster[1,1,1024]",
        "yarn",
        "k8s://https://h:443",
    ],
)
def test_a_master_without_an_address_is_not_checked(master: str | None) -> None:
    check_master(master, None, refuse)


@pytest.mark.parametrize(
    ("master", "remote"),
    [
        ("spark//host:7077", None),
        ("host:7077", None),
        ("local[]", None),
        ("local[0]", None),
        ("spark://host", None),
        ("spark://host:99999", None),
        ("spark://http://host:7077", None),
        (None, "host:15002"),
        (None, "sc://"),
    ],
)
def test_an_invalid_address_is_refused_with_an_example(master: str | None, remote: str | None) -> None:
    with pytest.raises(InvalidSetting, match=r"(use local\[\*\]|such as spark://host:7077|such as sc://host:15002)"):
        check_master(master, remote, accept)


def test_an_address_without_a_server_is_named_with_the_cause() -> None:
    with pytest.raises(
        NetworkError, match=r"--master spark://h1:7077: .*h1:7077: Connection refused.*Check the address"
    ):
        check_master("spark://h1:7077", None, refuse)
    with pytest.raises(NetworkError, match=r"--remote sc://h1: .*h1:15002: Connection refused"):
        check_master(None, "sc://h1", refuse)


def test_one_reachable_master_of_several_is_sufficient() -> None:
    check_master("spark://h1:7077,h2:7077", None, only_second)
    check_master(None, "sc://[::1]:15002/;user_id=me", accept)

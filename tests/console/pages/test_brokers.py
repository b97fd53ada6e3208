"""Brokers on pages, and their settings."""

from tests.console.visitor import Visitor, text_of


def test_a_broker_shows_its_runtime_information(console: Visitor) -> None:
    page = text_of(console.get("/brokers"))

    assert "broker-a DefaultCluster 127.0.0.1:" in page


def test_settings_are_searched(console: Visitor) -> None:
    page = text_of(console.get("/brokers/broker-a?q=transactiontimeout"))

    assert "transactionTimeOut 6000" in page
    assert "storeReplyMessageEnable" not in page.partition("What it says")[0]


def test_a_setting_is_changed_while_it_runs(console: Visitor) -> None:
    page = console.done("/brokers/broker-a", {"key": "traceOn", "value": "false"})
    assert "Changed traceOn of broker-a to false" in page

    console.done("/brokers/broker-a", {"key": "traceOn", "value": "true"})


def test_a_setting_of_the_start_is_refused(console: Visitor) -> None:
    answer = console.post("/brokers/broker-a", {"key": "storePathRootDir", "value": "/"})

    assert answer.status_code == 400
    assert "storePathRootDir" in answer.text


def test_a_setting_that_a_broker_does_not_have_is_refused(console: Visitor) -> None:
    answer = console.post("/brokers/broker-a", {"key": "flushDiskTyp", "value": "SYNC_FLUSH"})

    assert answer.status_code == 400
    assert "broker broker-a has no setting" in text_of(answer.text)

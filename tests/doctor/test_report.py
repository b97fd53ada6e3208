from pocketmq.doctor import Report, Step
from pocketmq.doctor.report import MAX_HINTS, broken, ok, unknown


def test_a_report_names_the_first_broken_step_with_its_fix() -> None:
    steps = (
        Step("address", ok("127.0.0.1:9876", "slow")),
        Step("topic", broken("no broker has the topic T", "Make it")),
        Step("disk", broken("it is full", "Make room")),
    )

    report = Report(name_servers="127.0.0.1:9876", topic="T", group=None, at_ms=0, steps=steps)

    assert report.sentence == "topic: no broker has the topic T. Make it."
    assert report.first_broken is report.step("topic")
    assert (report.is_healthy, report.hints) == (False, ("slow",))


def test_an_unknown_step_that_is_not_required_breaks_nothing() -> None:
    report = Report(name_servers="", topic=None, group=None, at_ms=0, steps=(Step("disk", unknown("no answer")),))

    assert report.is_healthy
    assert report.step("disk").sentence == "disk: no answer."


def test_long_lists_of_notes_are_shortened() -> None:
    finding = ok("well", *map(str, range(1_000)))

    assert len(finding.hints) == MAX_HINTS + 1
    assert finding.hints[-1] == "… and 994 more"

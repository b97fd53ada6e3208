"""What is kept of a message when it is copied to another cluster."""

from pocketmq.pipelines.mirror.copying import Origin, copy_of, parse_origin


def test_a_copy_keeps_the_properties_of_its_sender_and_names_its_origin() -> None:
    properties = {
        "KEYS": "k1 k2",
        "TAGS": "paid",
        "__SHARDINGKEY": "customer-7",
        "colour": "red",
        "UNIQ_KEY": "id",
        "DELAY": "3",
        "TRAN_MSG": "true",
        "REAL_TOPIC": "other",
    }

    copy = copy_of("orders", Origin("a", 1, 500), b"body", properties, 1_767_225_600_000, "id")

    assert (copy.topic, copy.body) == ("orders", b"body")
    assert copy.properties == {
        "KEYS": "k1 k2",
        "TAGS": "paid",
        "__SHARDINGKEY": "customer-7",
        "colour": "red",
        "mirrorOf": "a:1:500",
        "mirrorBorn": "1767225600000",
        "mirrorId": "id",
    }


def test_an_origin_is_parsed_also_with_blanks_in_the_broker_name() -> None:
    origin = Origin("broker:east", 3, 500)

    assert parse_origin(str(origin)) == origin
    assert [parse_origin(text) for text in ("", "a", "a:b:c", ":1:2", "a:1:-2")] == [None] * 5

"""Heartbeats and their fingerprint."""

from msgspec.structs import replace

from pocketmq.model.java_hash import java_hash
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.bodies.clients import ConsumerData, HeartbeatData, ProducerData, fingerprint

HEARTBEAT = HeartbeatData(
    "10.0.0.1@1",
    (ProducerData("PG"),),
    (
        ConsumerData("CG", subscription_data_set=(Subscription.parse("T", "a || b", sub_version=5), Subscription("U"))),
        ConsumerData("CG2"),
    ),
)


def test_a_heartbeat_has_the_form_of_java() -> None:
    heartbeat = HeartbeatData("c", consumer_data_set=(ConsumerData("CG", subscription_data_set=(Subscription("T"),)),))

    assert heartbeat.encode() == (
        b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
        b'"consumeType":"CONSUME_PASSIVELY","groupName":"CG","messageModel":"CLUSTERING","subscriptionDataSet":['
        b'{"classFilterMode":false,"codeSet":[],"expressionType":"TAG","subString":"*","subVersion":0,"tagsSet":[],'
        b'"topic":"T"}],"unitMode":false}],"heartbeatFingerprint":0,"producerDataSet":[],"withoutSub":false}'
    )


def test_a_heartbeat_of_release_4_9_is_version_1_of_the_exchange() -> None:
    read = HeartbeatData.decode(b'{"clientID":"c","consumerDataSet":[],"producerDataSet":[{"groupName":"PG"}]}')

    assert read == HeartbeatData("c", (ProducerData("PG"),))
    assert read.heartbeat_fingerprint == 0


def test_the_fingerprint_is_javas_hash_of_the_anonymous_heartbeat() -> None:
    heartbeat = HeartbeatData("someone", (ProducerData("PG"),), (ConsumerData("CG"),), 7, True)
    anonymous = HeartbeatData("", (ProducerData("PG"),), (ConsumerData("CG"),)).encode()

    assert fingerprint(heartbeat) == java_hash(anonymous.decode())


def test_sender_time_and_order_do_not_change_the_fingerprint() -> None:
    consumer, other = HEARTBEAT.consumer_data_set
    newer = tuple(replace(one, sub_version=99) for one in reversed(consumer.subscription_data_set))
    reordered = tuple(replace(one, tags_set=one.tags_set[::-1], code_set=one.code_set[::-1]) for one in newer)
    again = HeartbeatData(
        "10.0.0.2@7",
        HEARTBEAT.producer_data_set,
        (other, replace(consumer, subscription_data_set=reordered)),
        heartbeat_fingerprint=123,
    )

    assert fingerprint(again) == fingerprint(HEARTBEAT)


def test_another_subscription_has_another_fingerprint() -> None:
    consumer, other = HEARTBEAT.consumer_data_set
    without_tag = replace(consumer, subscription_data_set=(Subscription.parse("T", "a"), Subscription("U")))

    assert fingerprint(replace(HEARTBEAT, consumer_data_set=(without_tag, other))) != fingerprint(HEARTBEAT)
    assert fingerprint(replace(HEARTBEAT, producer_data_set=())) != fingerprint(HEARTBEAT)

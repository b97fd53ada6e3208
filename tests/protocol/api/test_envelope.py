"""Generic ext fields, read beside the header of any request."""

from pocketmq.protocol.api import Envelope
from pocketmq.protocol.api.offsets import QueryConsumerOffset
from pocketmq.protocol.fields import read_fields


def test_the_envelope_is_read_from_the_fields_of_any_request() -> None:
    ext = {
        "consumerGroup": "CG",
        "topic": "T",
        "queueId": "0",
        "bname": "broker-a",
        "ns": "space",
        "nsd": "true",
        "lo": "false",
        "ReqT": "0",
        "AccessKey": "key",
        "SecurityToken": "token",
        "Signature": "signature",
    }

    assert read_fields(QueryConsumerOffset, ext) == QueryConsumerOffset("CG", "T", 0)
    assert read_fields(Envelope, ext) == Envelope(
        broker_name="broker-a",
        namespace="space",
        namespaced=True,
        logical=False,
        request_type=0,
        access_key="key",
        security_token="token",
        signature="signature",
    )


def test_a_request_without_generic_fields_has_an_empty_envelope() -> None:
    assert read_fields(Envelope, None) == Envelope()

"""Families, and their text format."""

from prometheus_client.parser import text_string_to_metric_families

from pocketmq.metrics.families import counter, gauge, histogram, labels_of, metrics_text, with_labels
from pocketmq.model.durations import Sizes


def test_counters_get_the_suffix_of_prometheus() -> None:
    family = counter("messages_in", "Messages that came", {labels_of(topic="orders"): 3})

    assert metrics_text([family]) == (
        "# HELP messages_in_total Messages that came\n"
        "# TYPE messages_in_total counter\n"
        'messages_in_total{topic="orders"} 3\n'
    )


def test_a_number_without_labels_has_no_braces() -> None:
    assert metrics_text([gauge("topics", "Topics", 12)]).endswith("\ntopics 12\n")


def test_a_bucket_counts_all_values_up_to_its_bound() -> None:
    family = histogram("append_ms", "Times", Sizes((0.5, 1, 10), [2, 0, 3, 1], 47.5))

    assert metrics_text([family]).splitlines()[2:] == [
        'append_ms_bucket{le="0.5"} 2',
        'append_ms_bucket{le="1"} 2',
        'append_ms_bucket{le="10"} 5',
        'append_ms_bucket{le="+Inf"} 6',
        "append_ms_sum 47.5",
        "append_ms_count 6",
    ]


def test_additional_labels_precede_the_own_ones() -> None:
    (family,) = with_labels([gauge("lag", "Lag", {labels_of(topic="a"): 1})], labels_of(cluster="c"))

    assert metrics_text([family]).endswith('lag{cluster="c",topic="a"} 1\n')


def test_any_label_value_is_escaped_and_parsed_unchanged() -> None:
    nasty = 'a"b\\c\nd{}, # HELP'
    text = metrics_text([gauge("lag", "One\nline", {labels_of(topic=nasty): 2**60})])

    (family,) = text_string_to_metric_families(text)

    assert family.samples[0].labels == {"topic": nasty}
    assert family.samples[0].value == 2**60

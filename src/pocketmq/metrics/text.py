"""Families as the text that Prometheus reads, format 0.0.4.

# HELP rocketmq_topic_number Topics of the broker
# TYPE rocketmq_topic_number gauge
rocketmq_topic_number{cluster="DefaultCluster",node_id="broker-a"} 12
"""

from collections.abc import Iterable
from typing import Final

from pocketmq.metrics.families import Family, Labels

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_IN_LABELS: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_IN_HELP: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})


def metrics_text(families: Iterable[Family]) -> str:
    lines = []
    for family in families:
        lines.append(f"# HELP {family.name} {family.help.translate(_IN_HELP)}")
        lines.append(f"# TYPE {family.name} {family.kind.value}")
        lines += [f"{family.name}{suffix}{_labels(labels)} {value:.17g}" for suffix, labels, value in family.samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value.translate(_IN_LABELS)}"' for name, value in labels) + "}"

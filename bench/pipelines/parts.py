"""Who costs what in a run: brokers, Spark's Python workers, its Java, and the program that drives all of them."""

from enum import StrEnum

from bench.pipelines.processes import Cost, costs_below


class Part(StrEnum):
    """Who a process of a run is."""

    BROKER = "broker"
    WORKER = "worker"
    JAVA = "Java"
    DRIVER = "driver"


def cpu_by_part(root: int) -> dict[str, float]:
    """CPU seconds until now. Workers that have ended are counted by the Java that started them."""
    used: dict[str, float] = dict.fromkeys(Part, 0.0)
    for part, cost in _by_part(root):
        used[part] += cost.cpu_s
        if part in (Part.WORKER, Part.JAVA):
            used[Part.WORKER] += cost.ended_s
    return used


def peaks_by_part(root: int) -> dict[str, int]:
    """The largest memory of a process of each part, in bytes."""
    found: dict[str, int] = dict.fromkeys(Part, 0)
    for part, cost in _by_part(root):
        found[part] = max(found[part], cost.peak_bytes)
    return found


def _by_part(root: int) -> list[tuple[Part, Cost]]:
    family = costs_below(root)
    java = {cost.pid for cost in family if cost.program == "java"}
    workers = {cost.pid for pid in java for cost in costs_below(pid)} - java
    return [(_part(cost, root, workers), cost) for cost in family]


def _part(cost: Cost, root: int, workers: set[int]) -> Part:
    if cost.pid == root:
        return Part.DRIVER
    if cost.pid in workers:
        return Part.WORKER
    return Part.JAVA if cost.program == "java" else Part.BROKER

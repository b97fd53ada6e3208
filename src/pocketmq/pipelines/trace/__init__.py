"""The pipeline `trace`: what clients wrote to the trace topic, as timelines of messages and percentiles of latency."""

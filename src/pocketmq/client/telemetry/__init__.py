"""Metrics and traces of clients. All of them are hooks.

Modules in reading order:

    metrics        counters, histograms and gauges, for prometheus_client or OpenTelemetry
    tracing        message traces in RocketMQ's trace topic
    otel_tracing   spans for OpenTelemetry
"""

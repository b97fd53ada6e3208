"""What clients report about themselves. All of it uses the hooks.

Modules in reading order:

    metrics        counters, histograms and gauges, for prometheus_client or OpenTelemetry
    tracing        message traces in RocketMQ's trace topic
    otel_tracing   spans for OpenTelemetry
"""

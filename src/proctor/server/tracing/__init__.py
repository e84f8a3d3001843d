"""Traces for OpenTelemetry: a span for each request, each run, each attempt and each of its phases."""

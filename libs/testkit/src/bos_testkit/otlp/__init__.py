"""Traces as who receives OTLP has them."""

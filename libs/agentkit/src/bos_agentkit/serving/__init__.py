"""Serving an agent: one attempt at a step, its gRPC side, the whole service."""

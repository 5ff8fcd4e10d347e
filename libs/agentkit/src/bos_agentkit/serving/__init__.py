"""Serving an agent: execution of one attempt, gRPC servicer, service."""

"""Permissions: agents and tools of users, approvers of requests, audiences of run tokens."""

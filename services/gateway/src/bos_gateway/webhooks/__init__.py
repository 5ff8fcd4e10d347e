"""Webhooks: addresses of users, the outbox of events for them, and the task that posts them."""

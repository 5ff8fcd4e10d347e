"""Mailboxes over the Gmail API."""

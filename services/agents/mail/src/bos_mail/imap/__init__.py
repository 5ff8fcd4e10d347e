"""Mailboxes over IMAP, with SMTP for sending."""

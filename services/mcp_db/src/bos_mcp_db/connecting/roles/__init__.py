"""The read-only role: its script, run by an administrator, and the attempts that it must fail."""

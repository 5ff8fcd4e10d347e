"""Verified queries: stored beside the log, and read for steps whose agents take examples."""

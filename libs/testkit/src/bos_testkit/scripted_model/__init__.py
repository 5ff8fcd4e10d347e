"""Scripted model server: prepared replies, faults and quirks of real endpoints."""

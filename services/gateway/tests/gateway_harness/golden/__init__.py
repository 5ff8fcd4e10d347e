"""Logs of earlier versions."""

"""Run state, decisions and limits as pure functions: no I/O, no clock, no settings."""

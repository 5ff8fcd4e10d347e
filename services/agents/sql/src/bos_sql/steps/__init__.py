"""Steps from a question to a checked query and its answer."""

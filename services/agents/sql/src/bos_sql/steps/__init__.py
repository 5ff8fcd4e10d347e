"""Steps of an attempt: from a task to a checked query and its answer."""

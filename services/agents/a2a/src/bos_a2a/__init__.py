"""A2A agent: remote agents of the A2A protocol as specialists, without code."""

"""Display of foreign text to people: made visible, and without credentials. Pure."""

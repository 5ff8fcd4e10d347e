"""Command ``bos new agent``: writes the simplest agent into a checkout of Bos."""

"""Operators' view of the runs of others, and how they end them: no content, all of it audited."""

"""One remote agent: transport, card, connection, tasks."""

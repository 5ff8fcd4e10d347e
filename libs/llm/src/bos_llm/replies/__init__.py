"""Model replies: read, checked against a schema, repaired."""

"""Pictures of charts, drawn by processes without network."""

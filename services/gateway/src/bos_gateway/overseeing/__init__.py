"""What operators see of the runs of others, and how they end them: no content, and all is told."""

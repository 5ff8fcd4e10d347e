"""One module per format; all of them run in worker processes only."""

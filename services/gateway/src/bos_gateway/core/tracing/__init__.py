"""The spans of a run: their ids, and what its log says of them."""

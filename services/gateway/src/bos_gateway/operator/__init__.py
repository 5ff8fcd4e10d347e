"""Commands for those who run Bos: what is wrong, and what happened to a run."""

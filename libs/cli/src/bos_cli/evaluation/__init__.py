"""Evaluation: a set of questions asked of a running Bos, graded by rules, compared over time."""

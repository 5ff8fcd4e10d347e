"""Asks the demo questions of a real model and says how it did."""

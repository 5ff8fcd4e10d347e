"""Prompt of the model that grades answers by criteria."""

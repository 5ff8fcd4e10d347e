"""Replies of the scripted model to the demo's questions."""

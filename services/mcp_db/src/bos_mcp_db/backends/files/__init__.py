"""Uploaded files as a database of each user, which the files service answers for."""

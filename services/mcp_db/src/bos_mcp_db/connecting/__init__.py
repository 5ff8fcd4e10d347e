"""``bos connect``: proposes what of a database may be read, and drafts what its tables mean."""

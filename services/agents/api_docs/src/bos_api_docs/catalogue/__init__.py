"""Catalogues of APIs: operations and documentation snippets, loaded and ranked."""

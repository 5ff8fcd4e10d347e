"""The query in the dialects that do not run: translated, as far as that is known to be right."""

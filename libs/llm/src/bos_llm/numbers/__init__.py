"""Numbers and their units: read from text of any locale, checked against sources, declared."""

"""Admission: from a request to a run that is stored."""

"""Measurements of the hot paths. Figures compare within one run only; the machine is not ours."""

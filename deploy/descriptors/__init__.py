"""Descriptors of services: what each needs where it runs, and the files made from them."""

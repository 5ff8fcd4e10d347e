"""Ownership of runs by replicas: leases, epochs, adoption."""

"""Which replica owns a run: leases, epochs, adoption."""

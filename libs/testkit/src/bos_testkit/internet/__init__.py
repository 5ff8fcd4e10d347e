"""What hostile sites, names and addresses do to clients."""

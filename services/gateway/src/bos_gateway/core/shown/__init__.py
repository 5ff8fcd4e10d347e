"""What people are shown of what others wrote: made visible, and without credentials. Pure."""

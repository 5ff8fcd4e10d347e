"""Documents of the sample company: text sources, and their rendering into files."""

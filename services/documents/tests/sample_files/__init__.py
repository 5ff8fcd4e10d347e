"""Files for tests, made by the tests: ordinary ones of each format, and awkward ones."""

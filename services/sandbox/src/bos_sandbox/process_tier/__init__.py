"""Process tier: CPython behind namespaces, seccomp filters and resource limits."""

"""Code inside the isolation of the process tier: standard library only, no code of the service.

The service itself imports :mod:`bos_sandbox.process_tier.inside.wire` and nothing else of it.
"""

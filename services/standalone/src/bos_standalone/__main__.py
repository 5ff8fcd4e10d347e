"""Entry point of ``python -m bos_standalone``, the same as ``bos serve all``."""

from bos_standalone.cli import ALL, serve

if __name__ == "__main__":
    serve([ALL])

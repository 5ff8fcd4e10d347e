"""Operators' commands: ``bos doctor``, ``bos audit``, ``bos runs``.

They ask models and the public API, which the gateway itself does not: what they need for that is
the extra ``bos-gateway[operator]``.
"""

from importlib.util import find_spec

if not all(map(find_spec, ("bos_client", "bos_llm", "click"))):
    raise ModuleNotFoundError("install bos-gateway[operator] for the commands of operators")

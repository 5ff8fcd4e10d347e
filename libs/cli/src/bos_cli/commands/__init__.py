"""The commands of ``bos``, one module each."""

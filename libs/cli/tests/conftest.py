from bos_testkit.scripted_gateway import bos, gateway, start

__all__ = ["bos", "gateway", "start"]

"""asyncio helpers: owned tasks, fair limits, shared calls, the event loop."""

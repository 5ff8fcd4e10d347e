"""The endpoint for clients of OpenAI's API: chat completions, responses and models."""

from bos_protocols.openai.routes import openai_routes

__all__ = ["openai_routes"]

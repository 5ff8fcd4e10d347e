"""Programs that an agent's model writes: prompts, variables, sandbox calls, number check."""

"""Model-written programs: prompts, variables, sandbox client, number check."""

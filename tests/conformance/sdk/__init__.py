"""The official `openai` and `anthropic` clients, unmodified, against the provider simulator."""

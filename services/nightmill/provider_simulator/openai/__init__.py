"""OpenAI's side: its fields as tables, its words for what is wrong, its shapes on the wire. Pure."""

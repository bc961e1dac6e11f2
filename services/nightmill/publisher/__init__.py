"""Accounts for every item of a batch, checks its gates and switches readers to its result."""

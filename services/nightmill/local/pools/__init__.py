"""Pools as a person meets them: put one into pools.yaml, list them, and ask a provider whether one works."""

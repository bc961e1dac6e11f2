"""The bulk lane in the simulation: a provider with a Batch API, its faults, jobs, and what must hold of it."""

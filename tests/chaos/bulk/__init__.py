"""Real kills in the bulk lane: the gateway dies in the middle of batch jobs, and the provider's books are the judge."""

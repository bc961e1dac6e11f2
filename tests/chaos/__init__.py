"""Real kills: jobs on a real broker while processes die and stand still, judged by the provider's own books."""

"""Batches of both providers: their states, their lines, their rows, and the work in the background."""

"""What the runtime and the stores rely on: one suite over all that implements it."""

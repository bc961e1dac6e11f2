"""The planner: freezes input into blocks, admits or refuses a batch, releases blocks and expands them into items."""

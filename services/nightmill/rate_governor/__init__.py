"""The rate governor: leases of a pool's requests, tokens and slots to all processes that call it."""

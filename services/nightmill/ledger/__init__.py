"""The ledger: every call, item, batch and publication as rows of ClickHouse, and read-only SQL over them."""

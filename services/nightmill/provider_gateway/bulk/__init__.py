"""The bulk lane: shards go out as submissions to a provider's Batch API, for half the price and within a day."""

"""A provider over HTTP that speaks OpenAI's chat format, fails on request, and keeps its own bill.

Tests, benchmarks and the demo without keys call it in place of a real provider. Its ledger is the oracle: it knows
what was accepted, billed and delivered, independently of anything the system under test believes.

The decisions are pure: `scenario` (what may happen), `faults` (does it happen now), `answers` and `instances` (what
the model says), `reply` (what goes on the wire), `buckets` and `bill` (limits and books). `server` carries them out
over sockets, `run` is the process.
"""

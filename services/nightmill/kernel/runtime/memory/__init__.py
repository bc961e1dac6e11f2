"""The log in memory: the reference model of what the runtime relies on, for simulation and fast tests.

One `MemoryBroker` is the broker; each `MemoryLog` is an installation on it. It models partitions, groups with static
members and range assignment, positions committed under a generation, transactions with their markers and timeouts, a
last stable offset held back by open transactions, visibility that comes partition by partition, fencing, retention
and compaction. Time passes only when a test sets `now_ms`, and chance only comes from a `Random` it gives.
"""

from nightmill.kernel.runtime.memory.broker import MemoryBroker
from nightmill.kernel.runtime.memory.log import MemoryLog
from nightmill.kernel.runtime.memory.partition import CommitPoint
from nightmill.kernel.runtime.memory.session import MemorySession

__all__ = ["CommitPoint", "MemoryBroker", "MemoryLog", "MemorySession"]

"""Logs and metrics: one line of JSON per decision, Prometheus counters by a fixed list of names.

Log keys and counts, never prompt or document text, never keys to providers.
"""

import json
import logging
import sys
import time
from typing import Any, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

#: every metric of the runtime and the services: its kind and its meaning
MetricName = Literal[
    "records_handled",  # counter by topic: input records whose outcome is "done"
    "records_waited",  # counter by topic: records that had to be tried again
    "records_quarantined",  # counter by topic: records sent to a dead-letter topic
    "messages_sent",  # counter by topic: messages of committed transactions
    "transactions",  # counter by outcome: committed, aborted
    "rows_restored",  # counter: changelog records read to rebuild tables
    "partitions_open",  # gauge: partitions this instance owns
    "attempts",  # counter by state, failure_class, pool: upstream calls that ended
    "costs_unknown",  # counter by cause, pool: upstream calls that may have cost something nobody knows
    "duplicates_suppressed",  # counter by topic: events recognised as stale or repeated
    "watchdog_resent",  # counter: shards sent again because an attempt was overdue
    "items_settled",  # counter by outcome
    "verdicts",  # counter by kind, rule
    "publications",  # counter by state
    "bulk_lines_missing",  # counter by pool: requests of ended batches without a line in the results
    "bulk_lines_strange",  # counter by pool: result lines of nobody, or further ones for one request
]
_GAUGES: frozenset[MetricName] = frozenset({"partitions_open"})


class Metrics:
    """Counters and gauges of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._known: dict[str, Any] = {}
        self._labelled: dict[Any, Any] = {}  #: by name and labels: to find it again costs prometheus_client more

    def count(self, name: MetricName, value: float = 1, **labels: str) -> None:
        self._metric(name, labels).inc(value)

    def gauge(self, name: MetricName, value: float, **labels: str) -> None:
        self._metric(name, labels).set(value)

    def serve(self, port: int) -> None:
        """Serve Prometheus text on loopback."""
        start_http_server(port, addr="127.0.0.1", registry=self.registry)

    def _metric(self, name: MetricName, labels: dict[str, str]) -> Any:
        which = (name, *labels.items())
        found = self._labelled.get(which)
        if found is None:
            metric = self._declared(name, sorted(labels))
            found = self._labelled[which] = metric.labels(**labels) if labels else metric
        return found

    def _declared(self, name: MetricName, labels: list[str]) -> Any:
        if name not in self._known:
            kind = Gauge if name in _GAUGES else Counter
            self._known[name] = kind(f"nightmill_{name}", name.replace("_", " "), labels, registry=self.registry)
        return self._known[name]


metrics = Metrics()


class _JsonLines(logging.Formatter):
    """`{"at", "level", "logger", "event", ...extra}` on one line."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        at = self.formatTime(record, "%Y-%m-%dT%H:%M:%S")
        line = {
            "at": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name.removeprefix("nightmill."),
            "event": record.getMessage(),
            **{key: value for key, value in vars(record).items() if key not in _PLAIN},
        }
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def configure_logging(level: str = "INFO") -> None:
    """Log JSON lines to standard error. Called once, by a process's entry point."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    # each failed try is told once, by whoever waits
    for name in ("urllib3", "clickhouse_connect"):
        logging.getLogger(name).setLevel(logging.ERROR)

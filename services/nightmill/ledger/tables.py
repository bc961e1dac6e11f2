"""Tables of the ledger as this service writes them; deploy/clickhouse/ creates them.

Beside each table stands its key: the columns that make a repeated event the same row. `ver` decides between two words
on one key: the later place in the life of the row wins, whatever order they arrive in.
"""

from nightmill.kernel.store.columns import Kind, Table

_T, _N, _F, _MS, _USD = Kind.TEXT, Kind.NUMBER, Kind.FLAG, Kind.TIME_MS, Kind.NANO_USD

_COUNTS = tuple((name, _N) for name in ("accepted", "rejected", "dead_letter", "in_review", "cancelled", "reused"))
_TOTALS = (
    *((name, _N) for name in ("attempts", "retries", "repairs", "unknown_attempts")),
    *((name, _N) for name in ("input_tokens", "cached_tokens", "output_tokens")),
    ("cost_usd", _USD),
)

#: tokens of one call; all but the output are parts of the input
USAGE = ("input_tokens", "cached_tokens", "cache_write_tokens", "cache_write_1h_tokens", "output_tokens")

#: key: tenant, pipeline, item_key, ordinal, minted_at
ATTEMPTS = Table(
    name="attempts",
    columns=(
        *((name, _T) for name in ("tenant", "pipeline", "job_id", "batch_id")),
        ("generation", _N),
        ("source_id", _T),
        ("item_key", _T),
        ("ordinal", _N),
        ("minted_at", _MS),
        *((name, _T) for name in ("shard_id", "pool", "model", "lane", "state")),
        *((name, _T) for name in ("failure_class", "failure_signal", "failure_message", "billed")),
        ("http_status", _N),
        *((name, _T) for name in ("finish_reason", "verdict", "rule")),
        *((name, _N) for name in USAGE),
        ("cost_usd", _USD),
        ("reserved_usd", _USD),
        ("price_version", _T),
        ("is_repair", _F),
        ("late", _F),
        ("provider_request_id", _T),
        ("started_at", _MS),
        ("ended_at", _MS),
        ("ver", _N),
    ),
)

#: key: tenant, pipeline, item_key, ordinal, minted_at
VERDICTS = Table(
    name="verdicts",
    columns=(
        *((name, _T) for name in ("tenant", "pipeline", "job_id", "item_key")),
        ("ordinal", _N),
        ("minted_at", _MS),
        *((name, _T) for name in ("verdict", "rule", "field", "value", "output", "output_digest")),
        ("judged_at", _MS),
        ("ver", _N),
    ),
)

#: key: tenant, pipeline, batch_id, ordinal
ITEMS = Table(
    name="items",
    columns=(
        *((name, _T) for name in ("tenant", "pipeline", "job_id")),
        ("submitted_at", _MS),
        ("batch_id", _T),
        ("ordinal", _N),
        ("item_key", _T),
        ("generation", _N),
        ("revision", _N),
        *((name, _T) for name in ("source_id", "outcome", "verdict", "rule", "field", "value")),
        *((name, _T) for name in ("failure_class", "failure_signal", "failure_message")),
        ("reused", _F),
        *_TOTALS,
        *((name, _T) for name in ("attempt_id", "model", "pipeline_digest")),
        ("planned_at", _MS),
        ("settled_at", _MS),
        ("ver", _N),
    ),
)

#: key: tenant, pipeline, batch_id
BATCHES = Table(
    name="batches",
    columns=(
        *((name, _T) for name in ("tenant", "pipeline", "job_id")),
        ("submitted_at", _MS),
        *((name, _T) for name in ("batch_id", "pipeline_digest", "refusal_rule", "refusal_message")),
        *((name, _N) for name in ("planned", "refused_rows", "blocks", "input_tokens", "max_output_tokens")),
        *((name, _USD) for name in ("expected_cost_usd", "worst_cost_usd", "budget_usd")),
        ("deadline_at", _MS),
        ("priority", _N),
        ("tags", Kind.TAGS),
        ("sealed_at", _MS),
        ("ver", _N),
    ),
)

#: key: tenant, pipeline, version, batch_id, generation
PUBLISHES = Table(
    name="publishes",
    columns=(
        *((name, _T) for name in ("tenant", "pipeline", "job_id")),
        ("submitted_at", _MS),
        ("batch_id", _T),
        ("generation", _N),
        ("version", _N),
        ("state", _T),
        ("location", _T),
        ("rows", _N),
        ("bytes", _N),
        *_COUNTS,
        ("published_at", _MS),
        ("ver", _N),
    ),
)

#: key: tenant, pipeline, batch_id, generation
JOBS = Table(
    name="jobs",
    columns=(
        *((name, _T) for name in ("tenant", "pipeline", "job_id")),
        ("submitted_at", _MS),
        ("batch_id", _T),
        ("generation", _N),
        ("state", _T),
        ("reason", _T),
        ("planned", _N),
        ("refused_rows", _N),
        *_COUNTS,
        *_TOTALS,
        ("gold_compared", _N),
        ("gold_right", _N),
        ("version", _N),
        ("location", _T),
        ("completed_at", _MS),
        ("ver", _N),
    ),
)

#: key: pool, holder, epoch, minute
LEASE_USAGE = Table(
    name="lease_usage",
    columns=(
        ("pool", _T),
        ("holder", _T),
        ("epoch", _N),
        ("minute", Kind.MINUTE_S),
        ("seq", _N),
        *(
            (f"{what}_{of}", _N)
            for what in ("used", "reserved")
            for of in ("requests", "input_tokens", "output_tokens")
        ),
        ("wanted_requests", _N),
        ("wanted_slots", _N),
        ("slots_in_use", _N),
        ("asked_at", _MS),
        ("ver", _N),
    ),
)

TABLES = (ATTEMPTS, VERDICTS, ITEMS, BATCHES, PUBLISHES, JOBS, LEASE_USAGE)

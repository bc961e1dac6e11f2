-- The ledger's first tables. Unqualified names: the connection's database is the installation's own.
-- Every ORDER BY and PARTITION BY column is a pure function of the event (never now()), so that a repeated event meets
-- itself; `ver` is the position in the life of the row, so that the later word wins whatever order they arrive in.
-- A key never crosses partitions: FINAL may merge each partition alone.

CREATE TABLE IF NOT EXISTS attempts
(
    tenant              LowCardinality(String),
    pipeline            LowCardinality(String),
    job_id              LowCardinality(String),
    batch_id            LowCardinality(String),
    generation          UInt32,
    source_id           String,
    item_key            String,
    ordinal             UInt32,
    minted_at           DateTime64(3, 'UTC'),
    shard_id            String COMMENT 'calls made together',
    pool                LowCardinality(String),
    model               LowCardinality(String),
    lane                LowCardinality(String),
    state               LowCardinality(String) COMMENT 'unknown, answered or failed',
    failure_class       LowCardinality(String) COMMENT 'empty: no failure',
    failure_signal      LowCardinality(String),
    failure_message     String,
    billed              LowCardinality(String) COMMENT 'yes, no or unknown',
    http_status         Nullable(UInt16),
    finish_reason       LowCardinality(String),
    verdict             LowCardinality(String) COMMENT 'empty: there was no answer to judge',
    rule                LowCardinality(String),
    input_tokens        Nullable(UInt32) COMMENT 'cached included; null: not known',
    cached_tokens       Nullable(UInt32),
    output_tokens       Nullable(UInt32),
    cost_usd            Nullable(Decimal(18, 9)) COMMENT 'null: not known, never 0',
    reserved_usd        Decimal(18, 9) COMMENT 'worst case, kept while the cost is not known',
    price_version       LowCardinality(String),
    is_repair           Bool,
    late                Bool,
    provider_request_id String,
    started_at          Nullable(DateTime64(3, 'UTC')),
    ended_at            DateTime64(3, 'UTC'),
    ver                 UInt64 COMMENT 'unknown 2, answered or failed 3, corrected by a late answer 4',
    attempt_id          String ALIAS concat(item_key, '-', toString(ordinal)),
    INDEX source_id_bloom source_id TYPE bloom_filter(0.01) GRANULARITY 2,
    INDEX item_key_bloom item_key TYPE bloom_filter(0.01) GRANULARITY 2
)
ENGINE = ReplacingMergeTree(ver)
PARTITION BY toMonday(minted_at)
PRIMARY KEY (tenant, pipeline, toStartOfHour(minted_at))
ORDER BY (tenant, pipeline, toStartOfHour(minted_at), item_key, ordinal, minted_at)
TTL toDateTime(minted_at) + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000
COMMENT 'One row for each upstream call that happened or may have happened';

CREATE TABLE IF NOT EXISTS verdicts
(
    tenant        LowCardinality(String),
    pipeline      LowCardinality(String),
    job_id        LowCardinality(String),
    item_key      String,
    ordinal       UInt32,
    minted_at     DateTime64(3, 'UTC'),
    verdict       LowCardinality(String) COMMENT 'empty: an answer that was not judged',
    rule          LowCardinality(String),
    field         LowCardinality(String),
    value         String,
    output        String COMMENT 'the raw answer up to 8 KiB' CODEC(ZSTD(3)),
    output_digest String COMMENT 'blob of a longer answer',
    judged_at     DateTime64(3, 'UTC'),
    ver           UInt64,
    attempt_id    String ALIAS concat(item_key, '-', toString(ordinal)),
    INDEX item_key_bloom item_key TYPE bloom_filter(0.01) GRANULARITY 2
)
ENGINE = ReplacingMergeTree(ver)
PARTITION BY toMonday(minted_at)
PRIMARY KEY (tenant, pipeline, toStartOfHour(minted_at))
ORDER BY (tenant, pipeline, toStartOfHour(minted_at), item_key, ordinal, minted_at)
TTL toDateTime(minted_at) + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000
COMMENT 'One row for each answer: what the rules said, and the raw answer';

CREATE TABLE IF NOT EXISTS items
(
    tenant           LowCardinality(String),
    pipeline         LowCardinality(String),
    job_id           LowCardinality(String),
    submitted_at     DateTime64(3, 'UTC') COMMENT 'of the job',
    batch_id         LowCardinality(String),
    ordinal          UInt32,
    item_key         String,
    generation       UInt32,
    revision         UInt32,
    source_id        String,
    outcome          LowCardinality(String),
    verdict          LowCardinality(String),
    rule             LowCardinality(String),
    field            LowCardinality(String),
    value            String,
    failure_class    LowCardinality(String),
    failure_signal   LowCardinality(String),
    failure_message  String,
    reused           Bool,
    attempts         UInt32,
    retries          UInt32,
    repairs          UInt32,
    unknown_attempts UInt32,
    input_tokens     UInt64,
    cached_tokens    UInt64,
    output_tokens    UInt64,
    cost_usd         Decimal(18, 9) COMMENT 'sum of the known costs of this generation',
    attempt_id       String COMMENT 'of the accepted answer',
    model            LowCardinality(String),
    pipeline_digest  LowCardinality(String),
    planned_at       DateTime64(3, 'UTC'),
    settled_at       DateTime64(3, 'UTC'),
    ver              UInt64 COMMENT 'generation * 2^16 + revision',
    INDEX source_id_bloom source_id TYPE bloom_filter(0.01) GRANULARITY 2
)
ENGINE = ReplacingMergeTree(ver)
PARTITION BY toMonday(submitted_at)
ORDER BY (tenant, pipeline, batch_id, ordinal)
TTL toDateTime(submitted_at) + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000
COMMENT 'One row for each item of a batch: how it was last settled';

CREATE TABLE IF NOT EXISTS batches
(
    tenant            LowCardinality(String),
    pipeline          LowCardinality(String),
    job_id            String,
    submitted_at      DateTime64(3, 'UTC'),
    batch_id          String,
    pipeline_digest   String,
    refusal_rule      LowCardinality(String) COMMENT 'empty: admitted',
    refusal_message   String,
    planned           UInt64,
    refused_rows      UInt64,
    blocks            UInt32,
    input_tokens      UInt64 COMMENT 'estimate',
    max_output_tokens UInt64 COMMENT 'worst case',
    expected_cost_usd Nullable(Decimal(18, 9)),
    worst_cost_usd    Nullable(Decimal(18, 9)),
    budget_usd        Nullable(Decimal(18, 9)),
    deadline_at       Nullable(DateTime64(3, 'UTC')),
    priority          Int32,
    tags              Map(LowCardinality(String), String),
    sealed_at         DateTime64(3, 'UTC'),
    ver               UInt64
)
ENGINE = ReplacingMergeTree(ver)
PARTITION BY toMonday(submitted_at)
ORDER BY (tenant, pipeline, batch_id)
TTL toDateTime(submitted_at) + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000
COMMENT 'One row for each batch: what was planned, or why it was refused';

CREATE TABLE IF NOT EXISTS publishes
(
    tenant       LowCardinality(String),
    pipeline     LowCardinality(String),
    job_id       String,
    submitted_at DateTime64(3, 'UTC'),
    batch_id     String,
    generation   UInt32,
    version      UInt64,
    state        LowCardinality(String),
    location     String,
    rows         UInt64,
    bytes        UInt64,
    accepted     UInt64,
    rejected     UInt64,
    dead_letter  UInt64,
    in_review    UInt64,
    cancelled    UInt64,
    reused       UInt64,
    published_at DateTime64(3, 'UTC'),
    ver          UInt64
)
ENGINE = ReplacingMergeTree(ver)
PARTITION BY toMonday(submitted_at)
ORDER BY (tenant, pipeline, version, batch_id, generation)
TTL toDateTime(submitted_at) + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000
COMMENT 'One row for each version that readers saw';

CREATE TABLE IF NOT EXISTS jobs
(
    tenant           LowCardinality(String),
    pipeline         LowCardinality(String),
    job_id           String,
    submitted_at     DateTime64(3, 'UTC'),
    batch_id         String,
    generation       UInt32,
    state            LowCardinality(String),
    reason           String,
    planned          UInt64,
    refused_rows     UInt64,
    accepted         UInt64,
    rejected         UInt64,
    dead_letter      UInt64,
    in_review        UInt64,
    cancelled        UInt64,
    reused           UInt64,
    attempts         UInt64,
    retries          UInt64,
    repairs          UInt64,
    unknown_attempts UInt64,
    input_tokens     UInt64,
    cached_tokens    UInt64,
    output_tokens    UInt64,
    cost_usd         Decimal(18, 9) COMMENT 'sum of the known costs, as the publisher counted',
    gold_compared    Nullable(UInt64),
    gold_right       Nullable(UInt64),
    version          Nullable(UInt64),
    location         String,
    completed_at     DateTime64(3, 'UTC'),
    ver              UInt64 COMMENT 'a final state after a held one, then by time'
)
ENGINE = ReplacingMergeTree(ver)
PARTITION BY toMonday(submitted_at)
ORDER BY (tenant, pipeline, batch_id, generation)
TTL toDateTime(submitted_at) + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000
COMMENT 'One row for each generation of a batch: its last completion notice';

CREATE TABLE IF NOT EXISTS lease_usage
(
    pool                   LowCardinality(String),
    holder                 LowCardinality(String),
    epoch                  UInt64,
    minute                 DateTime('UTC'),
    seq                    UInt64,
    used_requests          UInt64 COMMENT 'amounts are cumulative within an epoch',
    used_input_tokens      UInt64,
    used_output_tokens     UInt64,
    reserved_requests      UInt64,
    reserved_input_tokens  UInt64,
    reserved_output_tokens UInt64,
    wanted_requests        UInt64,
    wanted_slots           UInt32,
    slots_in_use           UInt32,
    asked_at               DateTime64(3, 'UTC'),
    ver                    UInt64
)
ENGINE = ReplacingMergeTree(ver)
PARTITION BY toMonday(minute)
ORDER BY (pool, holder, epoch, minute)
TTL minute + INTERVAL 30 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000
COMMENT 'Last report of a lease holder in each minute';

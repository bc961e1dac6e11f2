-- Questions the product asks of the ledger. Each has a name between dashes, a description, and parameters {name:Type}.
-- Tenant and pipeline are the first columns of every key and the first parts of every job id: queries narrow by them.
-- FINAL is in force for every reader: a repeated event counts once.

-- job_totals --
-- A job: plan, last notice of each generation, and what its calls really cost.
SELECT
    b.batch_id AS batch_id,
    b.planned AS planned,
    b.refused_rows AS refused_rows,
    b.refusal_message AS refusal,
    b.expected_cost_usd AS expected_cost_usd,
    b.worst_cost_usd AS worst_cost_usd,
    b.budget_usd AS budget_usd,
    j.generation AS generation,
    j.state AS state,
    j.reason AS reason,
    j.accepted AS accepted,
    j.rejected AS rejected,
    j.dead_letter AS dead_letter,
    j.in_review AS in_review,
    j.cancelled AS cancelled,
    j.reused AS reused,
    j.version AS version,
    j.location AS location,
    a.calls AS calls,
    a.input_tokens AS input_tokens,
    a.cached_tokens AS cached_tokens,
    a.output_tokens AS output_tokens,
    a.cost_usd AS cost_usd,
    a.unknown_calls AS unknown_calls,
    a.reserved_usd AS reserved_usd,
    b.submitted_at AS submitted_at,
    nullIf(j.completed_at, toDateTime64(0, 3, 'UTC')) AS completed_at
FROM batches AS b
LEFT JOIN jobs AS j ON j.batch_id = b.batch_id AND j.tenant = b.tenant AND j.pipeline = b.pipeline
LEFT JOIN
(
    SELECT
        batch_id,
        count() AS calls,
        sum(c.input_tokens) AS input_tokens,
        sum(c.cached_tokens) AS cached_tokens,
        sum(c.output_tokens) AS output_tokens,
        sum(c.cost_usd) AS cost_usd,
        countIf(c.cost_usd IS NULL) AS unknown_calls,
        sumIf(c.reserved_usd, c.cost_usd IS NULL) AS reserved_usd
    FROM attempts AS c
    WHERE tenant = splitByChar('.', {job_id:String})[1]
        AND pipeline = splitByChar('.', {job_id:String})[2]
        AND job_id = {job_id:String}
    GROUP BY batch_id
) AS a ON a.batch_id = b.batch_id
WHERE b.tenant = splitByChar('.', {job_id:String})[1]
    AND b.pipeline = splitByChar('.', {job_id:String})[2]
    AND b.job_id = {job_id:String}
ORDER BY batch_id, generation

-- job_cost_by_stage --
-- What a job's calls cost by stage: the first call of an item, retries, repairs. Unknown costs are counted, not summed.
SELECT
    multiIf(is_repair, 'repair', call = 1, 'first', 'retry') AS stage,
    count() AS calls,
    uniqExact(item_key) AS items,
    sum(c.input_tokens) AS input_tokens,
    sum(c.cached_tokens) AS cached_tokens,
    sum(ifNull(c.cache_write_tokens, 0) + ifNull(c.cache_write_1h_tokens, 0)) AS written_tokens,
    sum(c.output_tokens) AS output_tokens,
    sum(c.cost_usd) AS cost_usd,
    countIf(c.cost_usd IS NULL) AS unknown_calls,
    sumIf(c.reserved_usd, c.cost_usd IS NULL) AS reserved_usd
FROM
(
    SELECT
        item_key, is_repair, input_tokens, cached_tokens, cache_write_tokens, cache_write_1h_tokens, output_tokens,
        cost_usd, reserved_usd,
        row_number() OVER (PARTITION BY item_key ORDER BY ordinal, minted_at) AS call
    FROM attempts
    WHERE tenant = splitByChar('.', {job_id:String})[1]
        AND pipeline = splitByChar('.', {job_id:String})[2]
        AND job_id = {job_id:String}
) AS c
GROUP BY stage
ORDER BY indexOf(['first', 'retry', 'repair'], stage)

-- job_cost_by_model --
-- What a job's calls cost by pool, model and price.
SELECT
    pool,
    model,
    price_version,
    count() AS calls,
    uniqExact(item_key) AS items,
    countIf(verdict = 'accepted') AS accepted,
    sum(c.input_tokens) AS input_tokens,
    sum(c.cached_tokens) AS cached_tokens,
    sum(ifNull(c.cache_write_tokens, 0) + ifNull(c.cache_write_1h_tokens, 0)) AS written_tokens,
    sum(c.output_tokens) AS output_tokens,
    sum(c.cost_usd) AS cost_usd,
    countIf(c.cost_usd IS NULL) AS unknown_calls,
    sumIf(c.reserved_usd, c.cost_usd IS NULL) AS reserved_usd
FROM attempts AS c
WHERE tenant = splitByChar('.', {job_id:String})[1]
    AND pipeline = splitByChar('.', {job_id:String})[2]
    AND job_id = {job_id:String}
GROUP BY pool, model, price_version
ORDER BY cost_usd DESC, pool, model, price_version

-- job_cost_by_cause --
-- What a job's money went into: the verdict and rule of each answer, or the class and signal of each failure.
SELECT
    multiIf(verdict != '', verdict, failure_class != '', failure_class, state) AS cause,
    if(verdict != '', rule, failure_signal) AS detail,
    count() AS calls,
    uniqExact(item_key) AS items,
    sum(c.input_tokens) AS input_tokens,
    sum(c.cached_tokens) AS cached_tokens,
    sum(ifNull(c.cache_write_tokens, 0) + ifNull(c.cache_write_1h_tokens, 0)) AS written_tokens,
    sum(c.output_tokens) AS output_tokens,
    sum(c.cost_usd) AS cost_usd,
    countIf(c.cost_usd IS NULL) AS unknown_calls,
    sumIf(c.reserved_usd, c.cost_usd IS NULL) AS reserved_usd
FROM attempts AS c
WHERE tenant = splitByChar('.', {job_id:String})[1]
    AND pipeline = splitByChar('.', {job_id:String})[2]
    AND job_id = {job_id:String}
GROUP BY cause, detail
ORDER BY cost_usd DESC, calls DESC, cause, detail

-- source_ids --
-- The first source ids that begin with a text, for a person who types only the start of one.
SELECT source_id
FROM
(
    SELECT source_id, tenant FROM items WHERE startsWith(source_id, {start:String})
    UNION ALL
    SELECT source_id, tenant FROM attempts WHERE startsWith(source_id, {start:String})
)
WHERE tenant = {tenant:String} OR {tenant:String} = ''
GROUP BY source_id
ORDER BY source_id
LIMIT 20

-- item_history --
-- How the item of a source id or item key was settled, by batch, newest first.
SELECT
    tenant, pipeline, job_id, batch_id, ordinal, generation, revision, source_id, item_key, outcome, verdict, rule,
    field, value, failure_class, failure_signal, failure_message, reused, attempts, retries, repairs, unknown_attempts,
    input_tokens, output_tokens, cost_usd, attempt_id, model, pipeline_digest, planned_at, settled_at
FROM items
WHERE (source_id = {id:String} OR item_key = {id:String})
    AND (tenant = {tenant:String} OR {tenant:String} = '')
ORDER BY settled_at DESC, batch_id DESC

-- item_attempts --
-- Every call made for a source id or item key, oldest first, with cost, cause and raw answer.
SELECT
    a.tenant AS tenant, a.pipeline AS pipeline, a.job_id AS job_id, a.generation AS generation,
    a.source_id AS source_id, a.item_key AS item_key, concat(a.item_key, '-', toString(a.ordinal)) AS attempt_id,
    a.ordinal AS ordinal, a.shard_id AS shard_id, a.pool AS pool, a.model AS model, a.lane AS lane, a.state AS state,
    a.is_repair AS is_repair, a.late AS late, a.failure_class AS failure_class, a.failure_signal AS failure_signal,
    a.failure_message AS failure_message, a.billed AS billed, a.http_status AS http_status,
    a.finish_reason AS finish_reason, a.input_tokens AS input_tokens, a.cached_tokens AS cached_tokens,
    a.cache_write_tokens AS cache_write_tokens, a.cache_write_1h_tokens AS cache_write_1h_tokens,
    a.output_tokens AS output_tokens, a.cost_usd AS cost_usd, a.reserved_usd AS reserved_usd,
    a.price_version AS price_version, a.provider_request_id AS provider_request_id, a.verdict AS verdict,
    a.rule AS rule, v.field AS field, v.value AS value, v.output AS output, v.output_digest AS output_digest,
    a.minted_at AS minted_at, a.started_at AS started_at, a.ended_at AS ended_at
FROM
(
    SELECT * FROM attempts
    WHERE (source_id = {id:String} OR item_key = {id:String})
        AND (tenant = {tenant:String} OR {tenant:String} = '')
) AS a
LEFT JOIN
(
    SELECT * FROM verdicts
    WHERE item_key = {id:String} OR item_key IN (SELECT item_key FROM attempts WHERE source_id = {id:String})
) AS v ON v.item_key = a.item_key AND v.ordinal = a.ordinal AND v.minted_at = a.minted_at
    AND v.tenant = a.tenant AND v.pipeline = a.pipeline
ORDER BY a.minted_at, a.ordinal

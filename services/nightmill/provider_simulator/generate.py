"""A call that makes a model work, from its checked body to its reply; one way for realtime calls and batch lines."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from nightmill.provider_simulator import faults
from nightmill.provider_simulator.answers import Answer, compose
from nightmill.provider_simulator.anthropic import shapes as anthropic_shapes
from nightmill.provider_simulator.asks import Ask
from nightmill.provider_simulator.draw import fraction
from nightmill.provider_simulator.faults import Occasion
from nightmill.provider_simulator.openai import shapes as openai_shapes
from nightmill.provider_simulator.openai.shapes import Sent, ident_of
from nightmill.provider_simulator.operations import Operation
from nightmill.provider_simulator.prices import Usage
from nightmill.provider_simulator.prompt_cache import NOTHING, Cached, PromptCache
from nightmill.provider_simulator.reply import Reply
from nightmill.provider_simulator.rules import AnswerRule, AnswerUsage, UsageForm, VectorForm
from nightmill.provider_simulator.scenario import Dialect, Scenario

_PLAIN = AnswerUsage()

#: what a tier is called in the answer, and billed as
_TIERS = {"fast": "priority", "auto": "default", "standard_only": "default"}

Shape = Callable[[Ask, Answer, Usage, Sent], bytes]
SHAPES: dict[Operation, Shape] = {
    Operation.CHAT: openai_shapes.chat,
    Operation.RESPONSES: openai_shapes.response,
    Operation.MESSAGES: anthropic_shapes.message,
}


class Work(NamedTuple):
    """One piece of work for the model."""

    operation: Operation  # which API's shape the answer has
    ask: Ask
    digest: bytes
    occurrence: int
    occasion: Occasion | None  # None: no rule of the scenario wants to know
    tier: str | None = None  # `batch` for lines of batches; None: as asked


def truncated(ask: Ask, scenario: Scenario) -> Ask:
    """The prompt as a server sees it that cuts long ones silently: the end is kept."""
    limit = scenario.truncate_tokens
    if limit is None or ask.prompt_tokens <= limit:
        return ask
    return ask._replace(prompt=ask.prompt[-limit * 4 :], last_text=ask.last_text[-limit * 4 :], prompt_tokens=limit)


def work(job: Work, scenario: Scenario, cache: PromptCache, *, now_ms: int) -> Reply:
    """The answer that is owed, what it costs, and how long the model takes for it. Same arguments, same reply."""
    ask, occasion = job.ask, job.occasion
    rule = None if occasion is None else faults.answer_rule(scenario, occasion)
    if job.operation is Operation.EMBEDDINGS:
        answer = Answer(content=None, completion_tokens=0)
    else:
        answer = compose(ask, rule, seed=scenario.seed, digest=job.digest)
    told = _PLAIN if rule is None else rule.usage
    usage = _usage(ask, answer, told, _cached(job, scenario, cache, now_ms=now_ms))
    tier = _tier(job, rule)
    ident = ident_of(job.digest, job.occurrence, odd=answer.odd_ids)
    sent = Sent(ident, now_ms // 1000, tier, told.report)
    if job.operation is Operation.EMBEDDINGS:
        form = VectorForm.PLAIN if rule is None else rule.vectors
        dimensions = scenario.embedding_dimensions
        body = openai_shapes.embeddings(ask, usage, sent, dimensions=dimensions, seed=scenario.seed, form=form)
    else:
        body = SHAPES[job.operation](ask, answer, usage, sent)
    wait_ms = 0.0 if scenario.instant else _wait_ms(scenario, job, answer)
    return Reply(
        status=200,
        body=body,
        usage=usage,
        tier=tier,
        completion=True,
        usage_told=told.report is UsageForm.FULL,
        wait_ms=wait_ms,
    )


def _usage(ask: Ask, answer: Answer, told: AnswerUsage, cached: Cached) -> Usage:
    prompt = ask.prompt_tokens
    if told is _PLAIN and cached is NOTHING:
        return Usage(prompt, answer.completion_tokens)
    read, write, write_1h = cached
    if told is not _PLAIN:
        rest = prompt - sum(cached)
        read += int(rest * told.cached)
        write += int(rest * told.cache_write)
        write_1h += int(rest * told.cache_write_1h)
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=answer.completion_tokens + told.reasoning_tokens,
        cached_tokens=read,
        cache_write_tokens=write,
        cache_write_1h_tokens=write_1h,
        reasoning_tokens=told.reasoning_tokens,
    )


def _cached(job: Work, scenario: Scenario, cache: PromptCache, *, now_ms: int) -> Cached:
    """What the prompt cache does with the prompt. Servers of one's own say nothing of theirs."""
    prefixes = job.ask.prefixes
    if not prefixes or not scenario.prompt_cache:
        return NOTHING
    if job.operation is not Operation.MESSAGES and scenario.dialect is not Dialect.OPENAI:
        return NOTHING
    hits = scenario.prompt_cache_hits
    found = hits >= 1 or fraction(scenario.seed, "cache", job.digest, job.occurrence) < hits
    begins_ms = now_ms if scenario.instant or job.tier == "batch" else now_ms + int(scenario.latency.fixed_ms)
    return cache.use(prefixes, now_ms=now_ms, begins_ms=begins_ms, found=found)


def _tier(job: Work, rule: AnswerRule | None) -> str:
    """The tier that was used: as asked, unless the rule says that the provider gave another one."""
    if rule is not None and rule.service_tier is not None:
        return rule.service_tier
    asked = job.tier or job.ask.service_tier or "default"
    return _TIERS.get(asked, asked)


def _wait_ms(scenario: Scenario, job: Work, answer: Answer) -> float:
    latency = scenario.latency
    wait_ms = latency.fixed_ms + answer.completion_tokens * latency.per_token_us / 1000
    if latency.jitter_ms:
        wait_ms += latency.jitter_ms * fraction(scenario.seed, "latency", job.digest, job.occurrence)
    if latency.tail_ms:
        drawn = fraction(scenario.seed, "tail", job.digest, job.occurrence)
        wait_ms -= latency.tail_ms * math.log(1 - drawn)
    return wait_ms

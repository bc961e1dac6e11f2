"""One line of a batch: what it asks, which fault befalls it, and the row that comes of it."""

from __future__ import annotations

import hashlib

from pydantic import JsonValue
from pydantic_core import to_json

from nightmill.provider_simulator import faults
from nightmill.provider_simulator.anthropic.read import read_body as read_message
from nightmill.provider_simulator.asks import Ask
from nightmill.provider_simulator.befall import Asked, befall
from nightmill.provider_simulator.bulk.batch import Batch
from nightmill.provider_simulator.bulk.lines import BODIES, ENDPOINTS
from nightmill.provider_simulator.bulk.rows import (
    BATCH_CANCELLED,
    BATCH_EXPIRED,
    Done,
    error_row,
    not_run_row,
    response_row,
    status_zero_row,
)
from nightmill.provider_simulator.bulk.shape import Line
from nightmill.provider_simulator.errors import ApiError
from nightmill.provider_simulator.faults import Occasion
from nightmill.provider_simulator.generate import Work, truncated, work
from nightmill.provider_simulator.openai.read import read_body
from nightmill.provider_simulator.operations import Operation
from nightmill.provider_simulator.reply import Manner, Reply, Side, Voice
from nightmill.provider_simulator.state import Run
from nightmill.provider_simulator.stories import LineError, Row

_DIGEST_BYTES = 16
_BATCH_ONLY = {"speed": "speed is not supported in batches"}


def run_line(run: Run, batch: Batch, line: Line, *, number: int, now_ms: int) -> Done:
    """Let the line run. Same scenario, batch, line: same row."""
    custom_id = to_json(line.custom_id)
    ident = b"%b%06d" % (batch.id[-12:].encode(), number)
    operation = ENDPOINTS[batch.endpoint]
    ask = _read(run, batch, operation, line)
    if isinstance(ask, ApiError):
        body = line.data().get(BODIES[batch.side])
        reply = _voice(run, batch, ident).refusal(ask)
        row = response_row(batch.side, custom_id, ident, reply)
        digest = _digest(to_json(body))
        return Done(custom_id=custom_id, good=False, row=row, digest=digest, reply=reply, model=_model(body))
    ask = truncated(ask, run.scenario)
    digest = _digest(f"{ask.model}\n{ask.prompt}".encode("utf-8", "surrogatepass"))
    occurrence = run.occurrence(Operation.LINE, digest) if run.counts_lines else 1
    occasion = None
    if run.scenario.ruled:
        occasion = Occasion(
            digest=digest,
            occurrence=occurrence,
            arrival=run.arrival("line"),
            elapsed_ms=max(0, now_ms - batch.created_at_ms),
            prompt=ask.prompt,
            operation=Operation.LINE,
            model=ask.model,
        )
    job = Work(operation, ask, digest, occurrence, occasion, "batch")
    return _answered(run, batch, job, custom_id=custom_id, ident=ident, now_ms=now_ms)


def not_run(batch: Batch, line: Line, *, number: int, expired: bool) -> Done:
    """The row of a line that did not run."""
    custom_id = to_json(line.custom_id)
    if batch.side is Side.ANTHROPIC:
        row = not_run_row(custom_id, "expired" if expired else "canceled")
    else:
        ident = b"%b%06d" % (batch.id[-12:].encode(), number)
        code, message = ("batch_expired", BATCH_EXPIRED) if expired else ("batch_cancelled", BATCH_CANCELLED)
        row = error_row(custom_id, ident, code, message)
    return Done(custom_id=custom_id, good=False, row=row)


def _answered(run: Run, batch: Batch, job: Work, *, custom_id: bytes, ident: bytes, now_ms: int) -> Done:
    scenario, ask = run.scenario, job.ask
    rule = None if job.occasion is None else faults.decide(scenario, job.occasion)

    def do() -> Reply:
        return work(job, scenario, run.cache, now_ms=now_ms)

    if rule is None:  # first, since asking a pydantic model for its class is dear
        reply = do()
    elif isinstance(rule, LineError):
        return _failed(run, batch, job, rule, custom_id=custom_id, ident=ident)
    elif isinstance(rule, Row):
        return _odd_row(run, batch, job, rule, do(), custom_id=custom_id, ident=ident)
    else:
        asked = Asked(model=ask.model, wanted_tokens=ask.prompt_tokens, context_tokens=scenario.context_tokens)
        reply = befall(rule, do, _voice(run, batch, ident), asked, now_ms=now_ms)
    good = reply.completion and reply.manner is Manner.WHOLE
    return _done(run, job, custom_id, response_row(batch.side, custom_id, ident, reply), reply, good=good)


def _failed(run: Run, batch: Batch, job: Work, rule: LineError, *, custom_id: bytes, ident: bytes) -> Done:
    """A row without a response, or with one that says nothing; Anthropic has one form for both."""
    if batch.side is Side.ANTHROPIC:
        error = ApiError(status=500, message="Internal server error")
        reply = _voice(run, batch, ident).refusal(error, fault=rule.kind, accepted=True)
        row = response_row(batch.side, custom_id, ident, reply)
    else:
        reply = Reply(status=0, fault=rule.kind, code=rule.code)
        if rule.form == "code":
            row = error_row(custom_id, ident, rule.code, "The request failed.")
        else:
            row = status_zero_row(custom_id, ident)
    return _done(run, job, custom_id, row, reply, good=rule.form == "status_zero" and batch.side is Side.OPENAI)


def _odd_row(run: Run, batch: Batch, job: Work, rule: Row, reply: Reply, *, custom_id: bytes, ident: bytes) -> Done:
    """A line that ran, and whose row is not as it should be."""
    reply.fault = f"row_{rule.form}"
    odd_type = rule.form == "odd_type" and batch.side is Side.ANTHROPIC  # OpenAI's rows have no type
    reply.usage_told = reply.usage_told and not odd_type and rule.form not in ("missing", "unknown_id")
    row: bytes | None = response_row(batch.side, custom_id, ident, reply, odd_type=odd_type)
    extra = None
    match rule.form:
        case "missing":
            row = None
        case "duplicate":
            extra = row
        case "unknown_id":
            row = response_row(batch.side, b'"unknown-%b"' % ident, ident, reply)
        case "foreign":
            extra = response_row(batch.side, b'"other-batch-%b"' % ident, ident, reply)
        case "odd_type":
            pass
    done = _done(run, job, custom_id, row, reply, good=True)
    return done._replace(extra=extra)


def _done(run: Run, job: Work, custom_id: bytes, row: bytes | None, reply: Reply, *, good: bool) -> Done:
    ask = job.ask
    nano_usd = run.cost(ask.model, reply.usage, "batch")
    return Done(custom_id, good, row, None, ask.model, job.digest, reply, ask.prompt_tokens, nano_usd)


def _read(run: Run, batch: Batch, operation: Operation, line: Line) -> Ask | ApiError:
    scenario = run.scenario
    known = None if scenario.context_tokens is not None else line.ask(scenario)
    if known is not None:
        return known
    ask = _checked(run, batch, operation, line.data().get(BODIES[batch.side]), checked=line.is_checked(scenario))
    if not isinstance(ask, ApiError):
        line.passed(scenario, ask)
    return ask


def _checked(run: Run, batch: Batch, operation: Operation, body: JsonValue, *, checked: bool) -> Ask | ApiError:
    if batch.side is Side.OPENAI:
        return read_body(operation, body, run.scenario, checked=checked)
    if isinstance(body, dict):
        name = next((name for name in _BATCH_ONLY if name in body), None)
        if name is not None:
            return ApiError(status=400, message=f"{name}: {_BATCH_ONLY[name]}", param=name)
    return read_message(operation, body, run.scenario, batch.version, checked=checked)


def _voice(run: Run, batch: Batch, ident: bytes) -> Voice:
    return Voice(side=batch.side, dialect=run.scenario.dialect, request_id=f"req_{ident.decode()}")


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:_DIGEST_BYTES]


def _model(body: JsonValue) -> str:
    model = body.get("model") if isinstance(body, dict) else None
    return model if isinstance(model, str) else ""

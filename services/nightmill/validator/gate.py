"""The gate between model and store: an answer's text in, a verdict out; nothing is stored without one (Q1).

In order: finish reason, JSON, schema, then the pipeline's rules as it lists them. The first that refuses decides.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jsonschema_rs

from nightmill.kernel.domain.lifecycle import VerdictKind
from nightmill.kernel.domain.pipeline import Pipeline, canonical_json
from nightmill.kernel.wire.messages import Verdict
from nightmill.validator.answer import Finding, Parsed, read_answer, shown
from nightmill.validator.effort import MAX_WAYS, Effort
from nightmill.validator.rules import Rule, read_checks
from nightmill.validator.vectors import VectorGate

ACCEPTED = Verdict(kind=VerdictKind.ACCEPTED)

#: stands for the offending value in a schema's message, so that a long value leaves room for what is wrong with it
_MASK = "\0"
_QUOTED = 80


class SchemaError(ValueError):
    """A pipeline's `output` that is no JSON Schema or no answer can be held against; the text says where and why."""


@dataclass(frozen=True, slots=True)
class Gate:
    """A pipeline's checks, compiled once."""

    schema: Any
    effort: Effort
    rules: tuple[Rule, ...]

    def judge(
        self, text: str, finish_reason: str | None, row: Callable[[], Mapping[str, Any]]
    ) -> tuple[Verdict, Any | None]:
        """The verdict, and the value when it is accepted. `row` is asked only when a rule needs the source."""
        read = read_answer(text, finish_reason)
        if isinstance(read, Finding):
            return _verdict(read), None
        finding = self._schema_finding(read) or self._rule_finding(read, row)
        return (ACCEPTED, read.value) if finding is None else (_verdict(finding), None)

    def stored(self, value: Any) -> bytes:
        """The accepted value as it is kept."""
        return canonical_json(value)

    def _schema_finding(self, parsed: Parsed) -> Finding | None:
        if self.schema.is_valid(parsed.value):
            return None
        if not self.effort.may_list_errors(parsed.value):
            problem = f"{_quoted(parsed.value)} does not fit the output schema, which has too many branches to tell why"
            return Finding(kind=VerdictKind.REPAIRABLE, rule="schema", value=shown(problem))
        error = next(iter(self.schema.iter_errors(parsed.value)))
        return Finding(
            kind=VerdictKind.REPAIRABLE, rule="schema", field=_path(error) or None, value=shown(_problem(error))
        )

    def _rule_finding(self, parsed: Parsed, row: Callable[[], Mapping[str, Any]]) -> Finding | None:
        source: Mapping[str, Any] | None = None
        for rule in self.rules:
            if rule.needs_row and source is None:
                source = row()
            finding = rule.check(parsed.value, source)
            if finding is not None:
                return finding
        return None


def gate_of(pipeline: Pipeline) -> Gate | VectorGate:
    """The gate of a pipeline of either kind. Raises as `compile_gate`."""
    embedding = pipeline.embedding
    return compile_gate(pipeline) if embedding is None else VectorGate(embedding.dimensions)


def compile_gate(pipeline: Pipeline) -> Gate:
    """The gate of a pipeline of answers. Raises `SchemaError`, or ValueError for a bad check."""
    try:
        schema = jsonschema_rs.validator_for(pipeline.output, mask=_MASK, retriever=_refuse_remote)
    except jsonschema_rs.ValidationError as error:
        place = ".".join(filter(None, ("output", _path(error))))
        raise SchemaError(
            f"{place}: not a JSON Schema: {_problem(error)}; see json-schema.org/draft/2020-12"
        ) from error
    except ValueError as error:  # what it says of deep nesting and of half characters
        raise SchemaError(f"output: can not be used: {error}; write a flatter schema of whole characters") from error
    effort = _effort(pipeline.output)
    rules = read_checks(pipeline.checks)
    _refuse_impossible(pipeline, rules)
    return Gate(schema, effort, rules)


def _effort(output: Any) -> Effort:
    try:
        effort = Effort(output)
    except ValueError as error:
        raise SchemaError(f"output: {error}") from error
    if effort.ways > MAX_WAYS:
        raise SchemaError(
            f"output: its branches and references lead to one value in more than {MAX_WAYS:,} ways, too many to hold "
            "answers against; name what several definitions repeat (a union of them, say) once under $defs"
        )
    return effort


def _refuse_impossible(pipeline: Pipeline, rules: tuple[Rule, ...]) -> None:
    """What asks for a field that no answer can have would refuse every one, after it was paid for."""
    fields = pipeline.output.get("properties")
    if pipeline.output.get("additionalProperties") is not False or not isinstance(fields, dict):
        return
    lacking = [name for name in pipeline.output.get("required", ()) if name not in fields]
    if lacking and pipeline.output.get("type") == "object" and "patternProperties" not in pipeline.output:
        raise SchemaError(
            f"output.required: no answer can have the field {lacking[0]!r}; properties has {', '.join(fields)}, "
            "and additionalProperties is false"
        )
    for position, rule in enumerate(rules):
        name = rule.looks_at.split(".")[0]
        if name not in fields:
            raise ValueError(
                f"checks.{position}: no answer can have the field {name!r}; the output schema has {', '.join(fields)}"
            )


def _path(error: jsonschema_rs.ValidationError) -> str:
    return ".".join(str(part) for part in error.instance_path)


def _problem(error: jsonschema_rs.ValidationError) -> str:
    return error.message.replace(_MASK, _quoted(error.instance))


def _quoted(value: Any) -> str:
    return shown(json.dumps(value, ensure_ascii=False), limit=_QUOTED)


def _refuse_remote(uri: str) -> Any:
    # a gate reads no network and no file: the schema is frozen with its job, whole
    raise ValueError(f"{uri} lies outside; copy it into the schema under $defs")


def _verdict(finding: Finding) -> Verdict:
    return Verdict(kind=finding.kind, rule=finding.rule, field=finding.field, value=finding.value)

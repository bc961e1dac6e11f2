"""The lines of a batch's input: what OpenAI refuses when it validates a file, and what each line asks for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from nightmill.provider_simulator.asks import Object
from nightmill.provider_simulator.bulk.shape import Line, LineReader
from nightmill.provider_simulator.operations import Operation
from nightmill.provider_simulator.reply import Side

ENDPOINTS: dict[str, Operation] = {
    "/v1/chat/completions": Operation.CHAT,
    "/v1/responses": Operation.RESPONSES,
    "/v1/embeddings": Operation.EMBEDDINGS,
    "/v1/messages": Operation.MESSAGES,
}
BODIES = {Side.OPENAI: "body", Side.ANTHROPIC: "params"}  # where the request is in a line
MAX_ERRORS = 100  # more are not listed
_READ_BYTES = 2**20
_LINE_FIELDS = ("custom_id", "method", "url", "body")


def raw_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, split on `\\n` bytes alone, without the end; an empty rest after the last one is none."""
    rest = b""
    with path.open("rb") as file:
        while chunk := file.read(_READ_BYTES):
            parts = (rest + chunk).split(b"\n")
            rest = parts.pop()
            yield from parts
    if rest:
        yield rest


@dataclass(slots=True, kw_only=True)
class FileCheck:
    """Reads a file line by line and collects what is wrong with it, as OpenAI does before a batch starts."""

    endpoint: str
    max_requests: int
    total: int = 0
    model: str | None = None
    errors: list[dict[str, JsonValue]] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)
    _reader: LineReader = field(default_factory=lambda: LineReader(BODIES[Side.OPENAI]))

    def line(self, raw: bytes) -> Line | None:
        """Check the next line; returned if it is good."""
        self.total += 1
        line = self._reader.read(raw)
        if line is None:
            self._refuse("invalid_json_line", "This line is not parseable as valid JSON.", None)
            return None
        if line.is_checked(self) and line.custom_id not in self._seen:  # nothing else of it can be wrong
            self._seen.add(str(line.custom_id))
            return line
        if not self._whole(line.data()):
            return None
        line.passed(self)
        return line

    def _whole(self, data: Object) -> bool:
        for name in _LINE_FIELDS:
            if data.get(name) is None:
                self._refuse("missing_required_parameter", f"Missing required parameter: '{name}'.", name)
                return False
        return self._fields(data)

    def finish(self) -> None:
        """The file has ended."""
        if self.total == 0:
            self._refuse("empty_file", "The batch input file is empty.", None, line=None)
        elif self.total > self.max_requests:
            self.errors.clear()
            message = f"The batch input file contains too many requests. Maximum is {self.max_requests} requests."
            self._refuse("too_many_tasks", message, None, line=None)

    def _fields(self, data: Object) -> bool:
        custom_id, url, body = data["custom_id"], data["url"], data["body"]
        if not isinstance(custom_id, str):
            self._refuse("invalid_type", "Invalid type for 'custom_id': expected a string.", "custom_id")
        elif custom_id in self._seen:
            message = f"The custom_id '{custom_id}' is used more than once; each request must have its own."
            self._refuse("duplicate_custom_id", message, "custom_id")
        elif data["method"] != "POST":
            self._refuse("invalid_method", f"Invalid value: '{data['method']}'. Value must be 'POST'.", "method")
        elif url != self.endpoint:
            message = f"The provided request url '{url}' does not match the batch endpoint '{self.endpoint}'."
            self._refuse("url_mismatch", message, "url")
        elif not isinstance(body, dict):
            self._refuse("invalid_type", "Invalid type for 'body': expected an object.", "body")
        elif self._model_fits(body):
            self._seen.add(custom_id)
            return True
        return False

    def _model_fits(self, body: Object) -> bool:
        model = body.get("model")
        if not isinstance(model, str) or not model:
            self._refuse("missing_required_parameter", "Missing required parameter: 'body.model'.", "body.model")
            return False
        if self.model is None:
            self.model = model
        if model != self.model:
            message = f"The model '{model}' does not match the model of the first line, '{self.model}'."
            self._refuse("mismatched_model", message, "body.model")
            return False
        if body.get("stream"):
            self._refuse("invalid_request", "Streaming is not supported in the Batch API.", "body.stream")
            return False
        return True

    def _refuse(self, code: str, message: str, param: str | None, *, line: int | None = -1) -> None:
        if len(self.errors) < MAX_ERRORS:
            place = self.total if line == -1 else line
            self.errors.append({"code": code, "message": message, "param": param, "line": place})

"""Requests and responses of the two Batch APIs as bytes, without a connection between."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

from nightmill.provider_gateway.exchange import Response
from simulation.bulk.batch import Batch
from simulation.bulk.provider import BatchApi

_ONE_PAGE = 3  #: lists are read on to their end


class Routes:
    """What a request to a path does."""

    def __init__(self, api: BatchApi) -> None:
        self._api = api

    def upload(self, name: str, content: bytes, *, lost_bytes: int) -> Response:
        """POST /v1/files"""
        file = self._api.keep(name, content[: len(content) - lost_bytes])
        return _ok(_file(file.id, file.name, file.content))

    def ask(self, pool: str, method: str, url: str, body: bytes | None) -> Response:
        """Any other request."""
        parts = urlsplit(url)
        words = parts.path.removeprefix("/v1/").split("/")
        after = next(iter(parse_qs(parts.query).get("after", []) or parse_qs(parts.query).get("after_id", [])), None)
        if words[0] == "files":
            return self._files(method, words[1:])
        inline = words[0] == "messages"
        words = words[2:] if inline else words[1:]
        if words:
            return self._batch(method, words)
        if method == "POST":
            return self._create(pool, body or b"", inline=inline)
        return self._listed(pool, after)

    # -- files

    def _files(self, method: str, words: list[str]) -> Response:
        files = self._api.files
        if not words:
            return _ok({"data": [_file(f.id, f.name, f.content) for f in reversed(files.values())], "has_more": False})
        file = files.get(words[0])
        if file is None:
            return _no(404, "no such file")
        if method == "DELETE":
            del files[file.id]
            return _ok({"id": file.id, "deleted": True})
        if words[1:] == ["content"]:
            return Response(status=200, headers={}, body=file.content)
        return _ok(_file(file.id, file.name, file.content))

    # -- batches

    def _create(self, pool: str, body: bytes, *, inline: bool) -> Response:
        document: dict[str, Any] = json.loads(body)
        if inline:
            requests = document["requests"]
            return _ok(_inline(self._created(pool, requests, "params", inline=True)))
        file = self._api.files.get(document["input_file_id"])
        if file is None:
            return _no(400, "no such input")
        requests = [json.loads(line) for line in file.content.splitlines()]
        batch = self._created(pool, requests, "body", inline=False)
        batch.metadata = document["metadata"]
        return _ok(_with_files(batch))

    def _created(self, pool: str, requests: list[dict[str, Any]], what: str, *, inline: bool) -> Batch:
        ids = [request["custom_id"] for request in requests]
        return self._api.create(pool, ids, [json.dumps(request[what]) for request in requests], inline=inline)

    def _listed(self, pool: str, after: str | None) -> Response:
        batches = [batch for batch in reversed(self._api.batches.values()) if batch.pool == pool]
        if after is not None:
            batches = batches[1 + [batch.id for batch in batches].index(after) :]
        rest = [batch for batch in batches if not batch.deleted and batch.listed_at_ms <= self._api.now_ms]
        page = rest[:_ONE_PAGE]
        return _ok({"data": [_shown(batch) for batch in page], "has_more": len(rest) > len(page)})

    def _batch(self, method: str, words: list[str]) -> Response:
        batch = self._api.batches.get(words[0])
        if batch is None or batch.deleted:
            return _no(404, "no such batch")
        if words[1:] == ["cancel"]:
            if batch.ended:
                return _no(400 if batch.inline else 409, "it has ended")
            self._api.cancel(batch)
        elif words[1:] == ["results"]:
            return Response(status=200, headers={}, body=batch.results) if batch.ended else _no(400, "not yet")
        elif method == "DELETE":
            if not batch.ended:
                return _no(400, "not yet")
            batch.deleted = True
        return _ok(_shown(batch))


def _shown(batch: Batch) -> dict[str, Any]:
    return _inline(batch) if batch.inline else _with_files(batch)


def _with_files(batch: Batch) -> dict[str, Any]:
    return {
        "id": batch.id,
        "status": batch.status,
        "metadata": batch.metadata,
        "created_at": batch.created_at_ms // 1000,
        "output_file_id": batch.output_id,
        "error_file_id": batch.error_id,
        "errors": {"data": batch.errors} if batch.status == "failed" else None,
    }


def _inline(batch: Batch) -> dict[str, Any]:
    counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
    kinds: Iterable[str] = ["processing"] * len(batch.lines)
    if batch.ended:
        # they add up, whatever the results lack
        kinds = (line.rows[0]["result"]["type"] if line.rows else "succeeded" for line in batch.lines)
    for kind in kinds:
        counts[kind] += 1
    return {
        "id": batch.id,
        "processing_status": batch.status,
        "request_counts": counts,
        "created_at": datetime.fromtimestamp(batch.created_at_ms / 1000, UTC).isoformat(),
    }


def _file(ident: str, name: str, content: bytes) -> dict[str, Any]:
    return {"id": ident, "object": "file", "filename": name, "bytes": len(content), "purpose": "batch"}


def _ok(document: dict[str, Any]) -> Response:
    return Response(status=200, headers={}, body=json.dumps(document).encode())


def _no(status: int, text: str) -> Response:
    return Response(status=status, headers={}, body=json.dumps({"error": {"message": text, "type": ""}}).encode())

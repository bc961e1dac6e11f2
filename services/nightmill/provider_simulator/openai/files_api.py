"""OpenAI's /v1/files: upload, list, retrieve, content with ranges, delete."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic_core import to_json

from nightmill.provider_simulator import errors
from nightmill.provider_simulator.draw import name as digest_name
from nightmill.provider_simulator.envelopes import shown
from nightmill.provider_simulator.errors import ApiError
from nightmill.provider_simulator.filestore import HIDDEN, RETENTION_MS, FileRecord
from nightmill.provider_simulator.inbound import Inbound
from nightmill.provider_simulator.multipart import BadForm, Form, boundary_of, file_chunks
from nightmill.provider_simulator.pages import page_of
from nightmill.provider_simulator.reply import FileBody, Reply, Voice
from nightmill.provider_simulator.scenario import Story
from nightmill.provider_simulator.state import State
from nightmill.provider_simulator.stories import FilePending, UploadAltered, UploadRefused

MAX_FILE_BYTES = 512 * 2**20
PURPOSES = ("assistants", "batch", "fine-tune", "vision", "user_data", "evals")
_RANGE = re.compile(r"bytes=([0-9]{1,18})-([0-9]{0,18})\Z")
_SECONDS = re.compile(r"[0-9]{1,9}")
_NOT_JSONL = "Invalid file format for Batch API. Must be .jsonl"
_EXPIRY_S = (3600, 2_592_000)


async def upload(state: State, inbound: Inbound) -> FileRecord | ApiError:
    """Read the form to disk and check it; the record is not added yet. An error leaves nothing behind."""
    ident = state.new_id("file-")
    path = state.files.path(ident)
    form = Form()
    try:
        size = await _received(inbound, form, path)
        error = _refusal(form, size)
    except BadForm as exc:
        size, error = 0, errors.invalid(f"Could not parse multipart form: {exc}.")
    except BaseException:  # the client went away in the middle
        path.unlink(missing_ok=True)
        raise
    if error is not None:
        path.unlink(missing_ok=True)
        return error
    now_ms = state.clock.now_ms()
    stated = form.fields.get("expires_after[seconds]")
    retention_ms = RETENTION_MS if form.fields["purpose"] == "batch" else None
    expiry_ms = int(stated) * 1000 if stated is not None else retention_ms
    return FileRecord(
        id=ident,
        filename=form.filename or "",
        purpose=form.fields["purpose"],
        bytes=size,
        created_at_ms=now_ms,
        processed_at_ms=now_ms,
        expires_at_ms=None if expiry_ms is None else now_ms + expiry_ms,
    )


def stored(state: State, record: FileRecord, stories: list[Story], voice: Voice) -> Reply:
    """Add the uploaded file, with whatever the scenario does to it."""
    for story in stories:
        match story:
            case UploadRefused():
                state.files.path(record.id).unlink(missing_ok=True)
                if story.form == "format":
                    return voice.refusal(errors.invalid(_NOT_JSONL, param="file"), fault=story.kind)
                return voice.refusal(_too_large(), fault=story.kind)
            case UploadAltered():
                record.bytes = max(0, record.bytes - story.lose_bytes)
                with state.files.path(record.id).open("r+b") as file:
                    file.truncate(record.bytes)
            case FilePending():
                record.processed_at_ms += story.for_ms
            case _:
                pass
    state.files.add(record)
    return _shown(record, state)


def listed(state: State, inbound: Inbound, voice: Voice) -> Reply:
    """GET /v1/files."""
    limit = inbound.whole_number("limit", 10_000, 1, 10_000)
    if isinstance(limit, ApiError):
        return voice.refusal(limit)
    order, purpose, now_ms = inbound.query.get("order", "desc"), inbound.query.get("purpose"), state.clock.now_ms()
    if order not in ("asc", "desc"):
        message = f"Invalid value: '{order}'. Supported values are: 'asc' and 'desc'."
        return voice.refusal(errors.invalid(message, param="order", code="invalid_value"))
    found = [
        (record.id, shown(record.as_json(now_ms), state.run.scenario.dialect))
        for record in state.files.all(now_ms=now_ms)
        if (purpose is None or record.purpose == purpose) and not record.id.startswith(HIDDEN)
    ]
    if order == "asc":
        found.reverse()
    page = page_of(found, limit=limit, after=inbound.query.get("after"))
    if isinstance(page, ApiError):
        return voice.refusal(page)
    return Reply(status=200, body=to_json({"object": "list", **page}))


def retrieved(state: State, ident: str, voice: Voice) -> Reply:
    """GET /v1/files/{id}."""
    record = _found(state, ident)
    return voice.refusal(record) if isinstance(record, ApiError) else _shown(record, state)


def deleted(state: State, ident: str, voice: Voice) -> Reply:
    """DELETE /v1/files/{id}."""
    record = _found(state, ident)
    if isinstance(record, ApiError):
        return voice.refusal(record)
    state.files.remove(ident)
    return Reply(status=200, body=to_json({"id": ident, "object": "file", "deleted": True}))


def content(state: State, inbound: Inbound, ident: str, voice: Voice) -> Reply:
    """GET /v1/files/{id}/content, whole or from where a broken download stopped."""
    record = _found(state, ident)
    if isinstance(record, ApiError):
        return voice.refusal(record)
    if record.gone:
        return voice.refusal(errors.not_found(f"No such File object: {ident}", param="id"))
    return file_reply(state.files.path(ident), record, inbound.headers.get("Range"))


def file_reply(path: Path, record: FileRecord, wanted: str | None) -> Reply:
    """The bytes asked for: 200, 206 with a range, 416 with one that lies beyond the end."""
    headers = {
        "Accept-Ranges": "bytes",
        "ETag": f'"{digest_name(record.bytes, record.id, record.created_at_ms)}"',
        "Content-Disposition": f'attachment; filename="{record.filename}"',
    }
    start, stop, status = 0, record.bytes, 200
    found = _RANGE.match(wanted or "")
    if found is not None:
        start = int(found[1])
        stop = min(record.bytes, int(found[2]) + 1) if found[2] else record.bytes
        if start >= record.bytes or start >= stop:
            headers["Content-Range"] = f"bytes */{record.bytes}"
            return Reply(status=416, headers=headers)
        status = 206
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{record.bytes}"
    body = FileBody(path=path, start=start, stop=stop, file_id=record.id)
    return Reply(status=status, file=body, headers=headers, content_type="application/octet-stream")


async def _received(inbound: Inbound, form: Form, path: Path) -> int:
    if inbound.chunks is None:
        raise BadForm("no body")
    boundary = boundary_of(inbound.headers.get("Content-Type"))
    size = 0
    with path.open("wb") as file:
        async for chunk in file_chunks(inbound.chunks, boundary, form):
            size += len(chunk)
            if size <= MAX_FILE_BYTES:
                file.write(chunk)
    return size


def _refusal(form: Form, size: int) -> ApiError | None:
    purpose = form.fields.get("purpose")
    if form.filename is None or form.file_field != "file":
        return errors.invalid("Missing required parameter: 'file'.", param="file", code="missing_required_parameter")
    if purpose is None:
        message = "Missing required parameter: 'purpose'."
        return errors.invalid(message, param="purpose", code="missing_required_parameter")
    if purpose not in PURPOSES:
        names = ", ".join(f"'{name}'" for name in PURPOSES[:-1])
        message = f"Invalid value: '{purpose}'. Supported values are: {names}, and '{PURPOSES[-1]}'."
        return errors.invalid(message, param="purpose", code="invalid_value")
    unknown = next((name for name in form.fields if name not in _FORM_FIELDS), None)
    if unknown is not None:
        return errors.invalid(f"Unknown parameter: '{unknown}'.", param=unknown, code="unknown_parameter")
    if size > MAX_FILE_BYTES:
        return _too_large()
    if purpose == "batch" and not form.filename.endswith(".jsonl"):
        return errors.invalid(_NOT_JSONL, param="file")
    return _expiry(form)


_FORM_FIELDS = frozenset({"purpose", "expires_after[anchor]", "expires_after[seconds]"})


def _expiry(form: Form) -> ApiError | None:
    stated = form.fields.get("expires_after[seconds]")
    if stated is None:
        return None
    least, most = _EXPIRY_S
    if _SECONDS.fullmatch(stated) is None or not least <= int(stated) <= most:
        message = f"Invalid 'expires_after.seconds': expected an integer between {least} and {most}."
        return errors.invalid(message, param="expires_after.seconds", code="invalid_value")
    if form.fields.get("expires_after[anchor]") != "created_at":
        message = "Invalid value for 'expires_after.anchor'. Value must be 'created_at'."
        return errors.invalid(message, param="expires_after.anchor", code="invalid_value")
    return None


def _too_large() -> ApiError:
    return errors.invalid("File is too large. The maximum file size is 512 MB.", param="file", code="file_too_large")


def _found(state: State, ident: str) -> FileRecord | ApiError:
    record = state.files.get(ident, now_ms=state.clock.now_ms())
    if record is None or ident.startswith(HIDDEN):
        return errors.not_found(f"No such File object: {ident}", param="id")
    return record


def _shown(record: FileRecord, state: State) -> Reply:
    return Reply(status=200, body=to_json(shown(record.as_json(state.clock.now_ms()), state.run.scenario.dialect)))

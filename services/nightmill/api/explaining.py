"""Why an item ended as it did: its settlements and calls from the ledger, its prompt from the frozen input (O2)."""

from collections.abc import Collection
from typing import Any

from pydantic import ValidationError

from nightmill.api.board import Board
from nightmill.api.errors import ApiError
from nightmill.api.findings import ExplainedAttempt, ExplainedItem, Explanation, LaneNote, PromptMessage
from nightmill.api.lane_notes import lane_notes
from nightmill.api.ledger import Ledger, in_nano_usd
from nightmill.kernel.domain.ids import batch_id
from nightmill.kernel.domain.lifecycle import BatchState, ItemOutcome
from nightmill.kernel.domain.prompt import PromptError, parse_prompt
from nightmill.kernel.domain.settings import Config
from nightmill.kernel.domain.vectors import NotAVector, decode_vector
from nightmill.kernel.store.blobs import BlobMissing, BlobStore
from nightmill.kernel.store.blocks import BlockReader, PipelineReader
from nightmill.kernel.wire.messages import RowRef

_LONGEST_ANSWER = 256 << 10
_LISTED = 5
_SHOWN_NUMBERS = 8


class Explainer:
    """Explains items by source id or item key."""

    def __init__(self, ledger: Ledger, blobs: BlobStore, config: Config) -> None:
        self._ledger, self._blobs, self._config = ledger, blobs, config
        self._blocks, self._pipelines = BlockReader(blobs), PipelineReader(blobs)

    def explain(self, board: Board, id_: str, tenant: str) -> Explanation:
        """Everything that is known of an item. The start of a source id will do when no other begins like it.

        Raises `ApiError` when nothing is known.
        """
        found = self._found(board, id_, tenant)
        if found is None:
            found = self._found(board, self._whole_id(id_, tenant), tenant)
        if found is None:
            raise _unknown(id_)
        return found

    def _found(self, board: Board, id_: str, tenant: str) -> Explanation | None:
        parameters = {"id": id_, "tenant": tenant}
        items = [
            ExplainedItem.model_validate(in_nano_usd(row)) for row in self._ledger.named("item_history", parameters)
        ]
        vector_jobs = {item.job_id for item in items if self._makes_vectors(item.pipeline_digest)}
        attempts = [self._attempt(row, vector_jobs) for row in self._ledger.named("item_attempts", parameters)]
        if not items and not attempts:
            return None
        prompt, note = self._prompt(board, items[0]) if items else (None, "it is not settled yet")
        return Explanation(
            id=id_,
            items=items,
            attempts=attempts,
            lanes=self._lanes(board, items[0] if items else None, attempts),
            prompt=prompt,
            prompt_note=note,
            next_command=next_command(board, items[0] if items else None, attempts),
        )

    def _whole_id(self, start: str, tenant: str) -> str:
        """The one source id that begins with `start`, or that is of its distribution. Raises `ApiError`."""
        rows = self._ledger.named("source_ids", {"start": start, "tenant": tenant})
        ids = [str(row["source_id"]) for row in rows]
        same_name = [id_ for id_ in ids if id_.startswith(f"{start}==")]
        if len(same_name) == 1 or len(ids) == 1:
            return (same_name or ids)[0]
        if not ids:
            raise _unknown(start)
        listed = ", ".join(ids[:_LISTED]) + (", …" if len(ids) > _LISTED else "")
        raise ApiError(409, "ambiguous_item", f"several items begin with {start!r}", f"name one of them: {listed}")

    def _makes_vectors(self, pipeline_digest: str) -> bool:
        try:
            return self._pipelines.get(pipeline_digest).embedding is not None
        except BlobMissing:
            return False

    def _attempt(self, row: dict[str, Any], vector_jobs: Collection[str]) -> ExplainedAttempt:
        digest = row.get("output_digest")
        if digest:
            try:
                row = {**row, "output": self._blobs.get(digest)[:_LONGEST_ANSWER].decode("utf-8", "replace")}
            except BlobMissing:
                row = {**row, "output": f"(in blob {digest}, which is gone)"}
        if row.get("output") and row["job_id"] in vector_jobs:
            row = {**row, "output": shown_vector(row["output"])}
        return ExplainedAttempt.model_validate(in_nano_usd(row))

    def _lanes(self, board: Board, item: ExplainedItem | None, attempts: list[ExplainedAttempt]) -> list[LaneNote]:
        """Of the newest settlement, else of the newest call; none when the pipeline is gone."""
        if item is not None:
            batch, key, digest = item.batch_id, item.item_key, item.pipeline_digest
        else:
            newest = attempts[-1]
            batch, key = batch_id(newest.job_id), newest.item_key
            digest = board.pipeline_digest(newest.job_id) or ""
        try:
            pipeline = self._pipelines.get(digest)
        except (BlobMissing, ValidationError):
            return []
        return lane_notes(board, self._config, pipeline, batch, key)

    def _prompt(self, board: Board, item: ExplainedItem) -> tuple[list[PromptMessage] | None, str | None]:
        """The first call's messages, or why they can not be shown."""
        digest = board.manifest_digest(item.batch_id)
        if digest is None:
            return None, "the plan of its batch is gone"
        try:
            row = row_of(self._blobs.get_json(digest), item.ordinal)
            if row is None:
                return None, "its batch's plan has no such row"
            pipeline = self._pipelines.get(item.pipeline_digest)
            source = self._blocks.row(row)
            fields = {name: source[name] for name in pipeline.input.fields}
            messages = parse_prompt(pipeline.prompt).render(fields)
        except (BlobMissing, PromptError) as error:
            return None, str(error)
        return [PromptMessage(role=each.role, content=each.content) for each in messages], None


def _unknown(id_: str) -> ApiError:
    remedy = (
        "check the id: that of a row, a text file's name, or name==version of a distribution; "
        "a running item appears with its first answer, a second or two later"
    )
    return ApiError(404, "unknown_item", f"the ledger knows no item {id_!r}", remedy)


def row_of(manifest: dict[str, Any], ordinal: int) -> RowRef | None:
    """Where the row of an ordinal lies, by the manifest of its batch."""
    for block in manifest["blocks"]:
        index = ordinal - int(block["first_ordinal"])
        if 0 <= index < int(block["rows"]):
            return RowRef(block=block["digest"], row=index)
    return None


def shown_vector(text: str) -> str:
    """A vector for people: how long it is, and how it begins."""
    try:
        numbers = decode_vector(text)
    except NotAVector:
        return text
    more = ", …" if len(numbers) > _SHOWN_NUMBERS else ""
    return f"vector of {len(numbers)} numbers: " + ", ".join(f"{n:.6g}" for n in numbers[:_SHOWN_NUMBERS]) + more


def next_command(board: Board, item: ExplainedItem | None, attempts: list[ExplainedAttempt]) -> str:
    """What a person may want to type next."""
    if item is None:
        return f"nightmill status {attempts[-1].job_id}"
    publication = board.publications.get(item.batch_id)
    held = publication is not None and publication.state is BatchState.HELD
    match item.outcome:
        case ItemOutcome.ACCEPTED:
            return f"nightmill results {item.job_id}" + (" --staged" if held else "")
        case ItemOutcome.IN_REVIEW if held:
            return f"nightmill approve {item.job_id}"
        case ItemOutcome.DEAD_LETTER | ItemOutcome.CANCELLED:
            return f"nightmill resume {item.job_id}"
        case _:
            return f"nightmill status {item.job_id}"

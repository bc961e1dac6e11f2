"""Why an item ended as it did: its settlements and calls from the ledger, its prompt from the frozen input (O2)."""

from typing import Any

from nightmill.api.board import Board
from nightmill.api.errors import ApiError
from nightmill.api.findings import ExplainedAttempt, ExplainedItem, Explanation, PromptMessage
from nightmill.api.ledger import Ledger, in_nano_usd
from nightmill.kernel.domain.lifecycle import BatchState, ItemOutcome
from nightmill.kernel.domain.prompt import PromptError, parse_prompt
from nightmill.kernel.store.blobs import BlobMissing, BlobStore
from nightmill.kernel.store.blocks import BlockReader, PipelineReader
from nightmill.kernel.wire.messages import RowRef

_LONGEST_ANSWER = 256 << 10


class Explainer:
    """Explains items by source id or item key."""

    def __init__(self, ledger: Ledger, blobs: BlobStore) -> None:
        self._ledger, self._blobs = ledger, blobs
        self._blocks, self._pipelines = BlockReader(blobs), PipelineReader(blobs)

    def explain(self, board: Board, id_: str, tenant: str) -> Explanation:
        """Everything that is known of an item. Raises `ApiError` when nothing is."""
        parameters = {"id": id_, "tenant": tenant}
        items = [
            ExplainedItem.model_validate(in_nano_usd(row)) for row in self._ledger.named("item_history", parameters)
        ]
        attempts = [self._attempt(row) for row in self._ledger.named("item_attempts", parameters)]
        if not items and not attempts:
            remedy = "check the id; a running item appears with its first answer, a second or two later"
            raise ApiError(404, "unknown_item", f"the ledger knows no item {id_!r}", remedy)
        prompt, note = self._prompt(board, items[0]) if items else (None, "it is not settled yet")
        return Explanation(
            id=id_,
            items=items,
            attempts=attempts,
            prompt=prompt,
            prompt_note=note,
            next_command=next_command(board, items[0] if items else None, attempts),
        )

    def _attempt(self, row: dict[str, Any]) -> ExplainedAttempt:
        digest = row.get("output_digest")
        if digest:
            try:
                row = {**row, "output": self._blobs.get(digest)[:_LONGEST_ANSWER].decode("utf-8", "replace")}
            except BlobMissing:
                row = {**row, "output": f"(in blob {digest}, which is gone)"}
        return ExplainedAttempt.model_validate(in_nano_usd(row))

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


def row_of(manifest: dict[str, Any], ordinal: int) -> RowRef | None:
    """Where the row of an ordinal lies, by the manifest of its batch."""
    for block in manifest["blocks"]:
        index = ordinal - int(block["first_ordinal"])
        if 0 <= index < int(block["rows"]):
            return RowRef(block=block["digest"], row=index)
    return None


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

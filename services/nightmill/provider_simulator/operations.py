"""The calls that the provider knows, by name: scenarios say with these names what a rule is for."""

from __future__ import annotations

from enum import StrEnum


class Operation(StrEnum):
    """One kind of call; the names are used in scenario files."""

    CHAT = "chat"
    RESPONSES = "responses"
    EMBEDDINGS = "embeddings"
    MESSAGES = "messages"
    COUNT_TOKENS = "count_tokens"
    MODELS = "models"
    FILE_CREATE = "file_create"
    FILE_LIST = "file_list"
    FILE_RETRIEVE = "file_retrieve"
    FILE_CONTENT = "file_content"
    FILE_DELETE = "file_delete"
    BATCH_CREATE = "batch_create"
    BATCH_LIST = "batch_list"
    BATCH_RETRIEVE = "batch_retrieve"
    BATCH_CANCEL = "batch_cancel"
    BATCH_RESULTS = "batch_results"
    BATCH_DELETE = "batch_delete"
    WEBHOOKS = "webhooks"
    LINE = "line"  # one line of a batch, not an HTTP call


#: the calls that make a model work: what a rule is for unless it says otherwise
GENERATING = frozenset({Operation.CHAT, Operation.RESPONSES, Operation.EMBEDDINGS, Operation.MESSAGES})

#: short names for several operations
GROUPS: dict[str, frozenset[Operation]] = {
    "generate": GENERATING,
    "files": frozenset(op for op in Operation if op.value.startswith("file_")),
    "batches": frozenset(op for op in Operation if op.value.startswith("batch_")),
    "any": frozenset(op for op in Operation if op is not Operation.LINE),
}

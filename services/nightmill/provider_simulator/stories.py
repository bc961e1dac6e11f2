"""Faults that change the story of a batch, of a line, of a file or of a webhook, rather than one HTTP answer.

A rule for batches is decided once, when the batch is created: `match` and `regex` look at the body of that call, so a
test may aim by metadata. A rule for lines looks at the line's prompt.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from nightmill.provider_simulator.operations import Operation
from nightmill.provider_simulator.rules import Selector


class _BatchStory(Selector):
    default_on: ClassVar[frozenset[Operation]] = frozenset({Operation.BATCH_CREATE})


class _LineStory(Selector):
    default_on: ClassVar[frozenset[Operation]] = frozenset({Operation.LINE})


class _FileStory(Selector):
    default_on: ClassVar[frozenset[Operation]] = frozenset({Operation.FILE_CREATE})


class BatchFailed(_BatchStory):
    """OpenAI: the batch fails in validation, with `lines` line errors (0: one error without a line)."""

    kind: Literal["batch_failed"]
    code: str = "invalid_json_line"
    message: str | None = None
    param: str | None = None
    lines: int = Field(default=1, ge=0)


class BatchStuck(_BatchStory):
    """Never leaves the state by itself; the window's end and a cancel still end it."""

    kind: Literal["batch_stuck"]
    state: Literal["validating", "in_progress", "finalizing"] = "in_progress"
    keep: float = Field(default=0, ge=0, le=1)  # share of the lines that are done before
    for_ms: int | None = Field(default=None, ge=0)  # None: for ever


class CountsWrong(_BatchStory):
    """`request_counts` disagree with the rows."""

    kind: Literal["counts_wrong"]
    form: Literal["frozen", "all_completed", "zero", "null"] = "all_completed"


class BatchExpires(_BatchStory):
    """The window ends after a share of the lines; `none`: nothing is kept."""

    kind: Literal["batch_expires"]
    keep: float = Field(default=0.5, ge=0, le=1)
    results: Literal["partial", "none"] = "partial"


class OutputIdBlank(_BatchStory):
    """`output_file_id` of a batch without successes is an empty text in place of null."""

    kind: Literal["output_id_blank"]


class ResultFile(_BatchStory):
    """How the result files are spoiled. `odd_size`: they are said to be longer than they are."""

    kind: Literal["result_file"]
    form: Literal["cut_last_line", "no_final_newline", "crlf", "blank_line", "bom", "odd_size"] = "cut_last_line"


class OddStatus(_BatchStory):
    """A status that no document names, after the batch has ended or while it runs."""

    kind: Literal["odd_status"]
    status: str = "paused"


class ListLag(_BatchStory):
    """The batch is missing from lists for a while after it was created."""

    kind: Literal["list_lag"]
    for_ms: int = Field(default=5_000, ge=0)


class CancelRaces(_BatchStory):
    """A cancel is accepted, and the batch completes all the same."""

    kind: Literal["cancel_races"]


class ResultsGone(_BatchStory):
    """The results, or one of their two files, are 404 although the batch says that they are there."""

    kind: Literal["results_gone"]
    file: Literal["both", "output", "error"] = "both"


class LineError(_LineStory):
    """A row with an error: `code` = no response but an error code, `status_zero` = a response without a status."""

    kind: Literal["line_error"]
    form: Literal["code", "status_zero"] = "code"
    code: str = "request_timeout"


class Row(_LineStory):
    """A row of the results that should not be as it is. The work is done and billed."""

    kind: Literal["row"]
    form: Literal["missing", "duplicate", "unknown_id", "foreign", "odd_type"]


class FilePending(_FileStory):
    """`uploaded` for a while before `processed`."""

    kind: Literal["file_pending"]
    for_ms: int = Field(default=5_000, ge=0)


class UploadRefused(_FileStory):
    """The upload is refused although nothing is wrong with it."""

    kind: Literal["upload_refused"]
    form: Literal["format", "too_large"] = "too_large"


class UploadAltered(_FileStory):
    """The upload is accepted and its last bytes are lost."""

    kind: Literal["upload_altered"]
    lose_bytes: int = Field(default=1, ge=1)


class WebhookFault(Selector):
    """What happens to the notice of a batch. `out_of_order` sends it after the next one."""

    default_on: ClassVar[frozenset[Operation]] = frozenset({Operation.WEBHOOKS})

    kind: Literal["webhook"]
    form: Literal["delayed", "duplicated", "out_of_order", "bad_signature", "old_timestamp", "dropped"]
    delay_ms: int = Field(default=1_000, ge=0)


BatchStory = (
    BatchFailed
    | BatchStuck
    | CountsWrong
    | BatchExpires
    | OutputIdBlank
    | ResultFile
    | OddStatus
    | ListLag
    | CancelRaces
    | ResultsGone
)
LineStory = LineError | Row
FileStory = FilePending | UploadRefused | UploadAltered

"""What is made of results that were fetched: read now, in part, later, or never (E6).

A file that is gone (404) keeps the other one from nothing: lines that are here are answered at once, and what has none
waits for the file. When it is given up, only what was in it is lost, and people are told which file it was. A file
that never has the size that it should have is read as it is in the end: lines that it lacks are missing ones.
"""

import dataclasses
import logging
from enum import StrEnum

from nightmill.kernel.runtime.observe import metrics
from nightmill.provider_gateway.bulk import errands as e
from nightmill.provider_gateway.bulk.effect import Effect, again_later, still_gone, tell
from nightmill.provider_gateway.bulk.results import Places, ResultFile
from nightmill.provider_gateway.bulk.steps import Timing, backoff_ms
from nightmill.provider_gateway.bulk.submission import Submission
from nightmill.provider_gateway.bulk.todo import READ_AT_ONCE


class Verdict(StrEnum):
    """What is to be done with results that are here."""

    READ = "read"  #: everything that will come is here
    READ_SOME = "read_some"  #: what has a line is answered, the rest waits for a file that is gone
    WAIT = "wait"  #: as before, and nothing new is here
    AFRESH = "afresh"  #: lines are missing: the files are brought once more before anybody believes that
    GIVE_UP = "give_up"  #: a file is gone for good: what has no line was in it


def verdict(
    *, missing: int, unread: int, gone: bool, gone_for_good: bool, missing_counts: bool, refetched: bool
) -> Verdict:
    """The verdict on a fetch after which so many orders have no line, and so many have one that was not read yet.

    `gone`: a file of the batch is. Pure.
    """
    if gone and missing:
        if gone_for_good:
            return Verdict.GIVE_UP
        return Verdict.READ_SOME if unread else Verdict.WAIT
    return Verdict.AFRESH if missing and missing_counts and not refetched else Verdict.READ


def fetched(
    submission: Submission, outcome: e.Harvest | e.Absent, effect: Effect, *, timing: Timing, now_ms: int
) -> None:
    """Take in what a fetch has brought."""
    row, found = submission.row, all_lost(submission) if isinstance(outcome, e.Absent) else outcome
    missing = found.places.missing
    # lines of requests that were answered before a restart are nobody's now
    strangers = max(0, found.strangers - (row.requests - len(submission.orders)))
    if missing and (strangers or row.requests - missing < (submission.ran or 0)) and not found.gone:
        doubt_cancel(submission, effect)
    gone = bool(found.gone and missing)
    if gone:
        again_later(submission, timing, now_ms)
        submission.lacks = found.gone
    else:
        submission.gone_since_ms, submission.lacks = None, ()
    match verdict(
        missing=missing,
        unread=len(found.places) - missing - _read_before(submission),
        gone=gone,
        gone_for_good=gone and still_gone(submission, timing, now_ms),
        missing_counts=not submission.row.absent_not_run,
        refetched=submission.refetched,
    ):
        case Verdict.WAIT:
            pass
        case Verdict.READ_SOME:
            submission.harvest, submission.due_at_ms = dataclasses.replace(found, waits=True), now_ms
            tell(submission, "results are here in part", "results_in_part", missing=missing, gone=list(found.gone))
        case Verdict.AFRESH:
            submission.refetched = True
            again_later(submission, timing, now_ms)
        case Verdict.GIVE_UP:
            tell(
                submission,
                "results lost",
                "results_lost",
                level=logging.ERROR,
                **_files(submission, found),
                missing=missing,
            )
            doubt_cancel(submission, effect)
            _take(submission, found, strangers)
            submission.due_at_ms = now_ms
        case Verdict.READ:
            _take(submission, found, strangers)


def answered(submission: Submission, *, timing: Timing, now_ms: int) -> None:
    """Take in that some more orders were looked at. After the last one, what waits for a file goes on waiting."""
    submission.given = min(submission.given + READ_AT_ONCE, len(submission.orders))
    harvest = submission.harvest
    if harvest is not None and harvest.waits and submission.given >= len(submission.orders):
        submission.read, submission.harvest, submission.given = harvest.places, None, 0
        submission.due_at_ms = now_ms + backoff_ms(submission.tries, timing)


def all_lost(submission: Submission) -> e.Harvest:
    """Every file that the batch has is gone, or the batch itself."""
    row = submission.row
    files = ((ResultFile.OUTPUT, row.output_id), (ResultFile.ERROR, row.error_id))
    gone = tuple(file for file, ident in files if ident is not None)
    places = Places(len(submission.orders))
    return e.Harvest(paths=(), places=places, strangers=0, repeats=0, gone=gone or (ResultFile.OUTPUT,))


def doubt_cancel(submission: Submission, effect: Effect) -> None:
    """A row of a cancelled batch is lost: a request without one may have run, and may have been billed."""
    if submission.row.absent_not_run:
        effect.put.append(submission.note(absent_not_run=False))


def _take(submission: Submission, found: e.Harvest, strangers: int) -> None:
    """What is here is all; people are told where it does not add up."""
    row = submission.row
    missing = 0 if row.absent_not_run else found.places.missing
    submission.harvest, submission.tries, submission.gone_since_ms, submission.lacks = found, 0, None, ()
    if missing and not found.gone:
        is_many = missing * 1_000 > row.requests
        level = logging.ERROR if is_many else logging.WARNING
        tell(submission, "results are missing", "results_missing", level=level, missing=missing)
    metrics.count("bulk_lines_missing", missing, pool=row.pool)
    if found.misfits:
        tell(submission, "results have another size", "results_misfit", level=logging.ERROR, files=list(found.misfits))
    tell(submission, "results are here", "results_fetched", missing=missing, repeats=found.repeats)
    if strangers or found.repeats:
        metrics.count("bulk_lines_strange", strangers + found.repeats, pool=row.pool)
        counts = {"unknown": strangers, "repeated": found.repeats, "kept_in": str(found.aside)}
        tell(submission, "results have strange lines", "strange_lines", level=logging.ERROR, **counts)


def _files(submission: Submission, found: e.Harvest) -> dict[str, object]:
    row = submission.row
    ids = {ResultFile.OUTPUT: row.output_id, ResultFile.ERROR: row.error_id}
    return {"files": {file.value: ids[file] for file in found.gone}}


def _read_before(submission: Submission) -> int:
    return 0 if submission.read is None else len(submission.read) - submission.read.missing

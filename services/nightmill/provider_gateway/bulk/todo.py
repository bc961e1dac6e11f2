"""The errand that carries a step out. Pure."""

from nightmill.provider_gateway.bulk import errands as e
from nightmill.provider_gateway.bulk.steps import Step, Timing, takes_any_size
from nightmill.provider_gateway.bulk.submission import Submission
from nightmill.provider_gateway.orders import custom_id

#: how far the provider's clock may be off ours, when its list of batches is searched
_SLACK_MS = 3_600_000
#: answers that are read at a time
READ_AT_ONCE = 1_000


def errand_of(step: Step, submission: Submission, timing: Timing, others: frozenset[str]) -> e.Errand:
    """What to do outside for a step; `others` are batches of other submissions.

    Raises ValueError for a step that needs nothing outside.
    """
    row, access, built = submission.row, submission.access, submission.built
    match step:
        case Step.UPLOAD if built is not None:
            return e.Upload(access=access, built=built)
        case Step.CREATE if built is not None and row.armed_at_ms is not None:
            before_ms = row.armed_at_ms + timing.submit_within
            return e.Create(access=access, built=built, file_id=row.file_id, before_ms=before_ms)
        case Step.LOOK_UP:
            has_key = access.dialect is not None and access.dialect.frame is None
            ids = frozenset() if has_key else frozenset(map(custom_id, submission.orders))
            return e.LookUp(access=access, row=row, since_ms=(row.armed_at_ms or 0) - _SLACK_MS, ids=ids, others=others)
        case Step.FENCE:
            return e.Remove(access=access, file_ids=_files(row.file_id), name=row.submission_id)
        case Step.CANCEL if row.provider_batch_id is not None:
            return e.Cancel(access=access, batch_id=row.provider_batch_id)
        case Step.FETCH:
            return e.Fetch(
                access=access,
                row=row,
                orders=tuple(submission.orders),
                afresh=submission.refetched,
                any_size=takes_any_size(submission.misfits),
            )
        case Step.READ if submission.harvest is not None:
            first = submission.given
            orders = tuple(submission.orders[first : first + READ_AT_ONCE])
            return e.Read(
                access=access, row=row, harvest=submission.harvest, orders=orders, first=first, before=submission.read
            )
        case Step.REMOVE:
            files = _files(row.file_id, row.output_id, row.error_id)
            strays = submission.strays or row.file_id is None
            return e.Remove(access=access, file_ids=files, name=row.submission_id, strays=strays)
        case _:
            raise ValueError(f"submission {row.submission_id}: nothing outside is to be done for {step}")


def _files(*ids: str | None) -> tuple[str, ...]:
    return tuple(ident for ident in ids if ident is not None)

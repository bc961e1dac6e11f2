"""Short requests of the bulk lane: upload, create, look up, poll, cancel, remove; and what their responses mean.

After a create nothing is taken for granted: only a refusal in so many words says that nothing was created.
"""

from collections.abc import Callable, Sequence
from typing import assert_never

from nightmill.kernel.wire.messages import Failure
from nightmill.provider_gateway.bulk import errands as e
from nightmill.provider_gateway.bulk.dialect import FINGERPRINT, SUBMISSION, Ask, BatchSeen, BulkDialect
from nightmill.provider_gateway.bulk.orphans import Sign, recognised, sign_of
from nightmill.provider_gateway.bulk.wire import NotSent, To, Wire
from nightmill.provider_gateway.exchange import Response
from nightmill.provider_gateway.failures import Signal, failure
from nightmill.provider_gateway.pools import PoolAccess

#: from so many batches on, one list is less than a request for each
_MANY = 20
_MOST_PAGES = 50
_TRANSFER_S = 1800.0

Short = e.Upload | e.Create | e.LookUp | e.Poll | e.Cancel | e.Remove


class Requests:
    """Carries short errands out. Raises `Broken` for a request that did not end in a response."""

    def __init__(self, wire: Wire, *, request_s: float, clock_ms: Callable[[], int]) -> None:
        self._wire, self._request_s, self._clock_ms = wire, request_s, clock_ms

    def ask(self, errand: Short) -> e.Outcome:
        """What came of it."""
        dialect = dialect_of(errand.access)
        match errand:
            case e.Upload():
                return self._upload(errand, dialect)
            case e.Create():
                return self._create(errand, dialect)
            case e.LookUp():
                return self._look_up(errand, dialect)
            case e.Poll():
                return self._poll(errand, dialect)
            case e.Cancel():
                response = self._send(errand.access, dialect.cancel(errand.access.base_url, errand.batch_id))
                # a refusal says that it has ended, which the next look will show: as good as done
                return e.Done() if response.status in (200, 400, 409) else self._refused(errand.access, response)
            case e.Remove():
                return self._remove(errand, dialect)
            case _:
                assert_never(errand)

    def _upload(self, errand: e.Upload, dialect: BulkDialect) -> e.Outcome:
        access, built = errand.access, errand.built
        form = dialect.upload(access.base_url, built.name)
        if form is None:
            raise ValueError(f"pool {access.name} takes no files")
        response = self._wire.upload(form, built.path, to_pool(access), deadline_s=_TRANSFER_S)
        if response.status != 200:
            return self._refused(access, response)
        stored = dialect.stored(response.body)
        if stored is None:
            return e.Refused(failure=failure(Signal.UNEXPECTED_SHAPE, status=200))
        if stored.bytes is not None and stored.bytes != built.bytes:
            self._send(access, dialect.remove(access.base_url, stored.id))
            return e.Refused(failure=failure(Signal.UPLOAD_DAMAGED))
        return stored.id

    def _create(self, errand: e.Create, dialect: BulkDialect) -> e.Outcome:
        access = errand.access
        try:
            response = self._created(errand, dialect)
        except NotSent:
            return e.TooLate()
        if response.status == 200:
            seen = dialect.seen(response.body)
            return seen or e.Unsure(failure=failure(Signal.UNEXPECTED_SHAPE, status=200))
        found = _failure(access, response, self._clock_ms())
        said_no = 400 <= response.status < 500 and response.status not in (408, 409)
        return e.Refused(failure=found) if said_no else e.Unsure(failure=found)

    def _created(self, errand: e.Create, dialect: BulkDialect) -> Response:
        access, built, frame = errand.access, errand.built, dialect.frame

        def may_send() -> bool:
            return self._clock_ms() < errand.before_ms

        if frame is not None:
            url = f"{access.base_url.rstrip('/')}/{frame.path}"
            return self._wire.post_file(url, built.path, to_pool(access), deadline_s=self._request_s, may_send=may_send)
        keys = {SUBMISSION: built.name, FINGERPRINT: built.fingerprint}
        ask = dialect.create(access.base_url, file_id=errand.file_id or "", endpoint=built.endpoint, keys=keys)
        if ask is None:
            raise ValueError(f"pool {access.name} creates no batches of files")
        return self._wire.send(ask, to_pool(access), deadline_s=self._request_s, may_send=may_send)

    def _look_up(self, errand: e.LookUp, dialect: BulkDialect) -> e.Outcome:
        """Absent only if every page down to `since_ms` was read and said so."""
        access, after = errand.access, None
        candidates: list[BatchSeen] = []
        for _ in range(_MOST_PAGES):
            response = self._send(access, dialect.listing(access.base_url, after))
            page = dialect.page(response.body) if response.status == 200 else None
            if page is None:
                return self._refused(access, response)
            for seen in page.batches:
                if self._may_be(seen, errand, dialect):
                    candidates.append(seen)
            oldest = page.batches[-1].created_at_ms if page.batches else None
            if page.next_after is None or (oldest is not None and oldest < errand.since_ms):
                return self._recognised(candidates, errand, dialect)
            after = page.next_after
        return e.Refused(failure=failure(Signal.LIST_TOO_LONG))

    def _may_be(self, seen: BatchSeen, errand: e.LookUp, dialect: BulkDialect) -> bool:
        """Whether a batch has our key; or, where it can have none, as many requests at such a time."""
        if dialect.frame is None:
            return seen.submission == errand.row.submission_id
        recent = seen.created_at_ms is None or seen.created_at_ms >= errand.since_ms
        return recent and seen.id not in errand.others and seen.requests in (None, errand.row.requests)

    def _recognised(self, candidates: Sequence[BatchSeen], errand: e.LookUp, dialect: BulkDialect) -> e.Outcome:
        """The batch that is ours. Without a key it is known by the ids in its results, so it must have ended."""
        if dialect.frame is None:
            return candidates[0] if candidates else e.Absent()
        access = errand.access
        signs: list[tuple[BatchSeen, Sign]] = []
        for seen in candidates:
            if seen.output_id is None:
                signs.append((seen, sign_of(seen, None, errand.ids)))
                continue
            ask = dialect.content(access.base_url, seen.output_id)
            response = self._wire.first_line(ask, to_pool(access), deadline_s=self._request_s)
            if response.status == 404:  # removed or archived: its results were looked at before
                continue
            if response.status != 200:
                return self._refused(access, response)
            signs.append((seen, sign_of(seen, dialect.read(response.body), errand.ids)))
        return recognised(signs)

    def _poll(self, errand: e.Poll, dialect: BulkDialect) -> e.Outcome:
        access, wanted = errand.access, set(errand.batch_ids)
        found: list[BatchSeen] = []
        if len(wanted) > _MANY:
            response = self._send(access, dialect.listing(access.base_url, None))
            page = dialect.page(response.body) if response.status == 200 else None
            if page is not None:
                found = [seen for seen in page.batches if seen.id in wanted]
                wanted -= {seen.id for seen in found}
        gone: list[str] = []
        for batch_id in sorted(wanted):
            response = self._send(access, dialect.retrieve(access.base_url, batch_id))
            seen = dialect.seen(response.body) if response.status == 200 else None
            if seen is not None:
                found.append(seen)
            elif response.status == 404:
                gone.append(batch_id)
            else:
                return e.Polled(batches=tuple(found)) if found else self._refused(access, response)
        if gone:  # what can not be shown may be listed all the same
            response = self._send(access, dialect.listing(access.base_url, None))
            page = dialect.page(response.body) if response.status == 200 else None
            found += [seen for seen in page.batches if seen.id in gone] if page is not None else []
        return e.Polled(batches=tuple(found), gone=tuple(gone))

    def _remove(self, errand: e.Remove, dialect: BulkDialect) -> e.Outcome:
        file_ids = set(errand.file_ids)
        uploads = dialect.uploads(errand.access.base_url) if errand.strays else None
        if uploads is not None:
            response = self._send(errand.access, uploads)
            strays = dialect.named(response.body, errand.name) if response.status == 200 else None
            if strays is None:
                return self._refused(errand.access, response)
            file_ids.update(strays)
        for file_id in sorted(file_ids):
            response = self._send(errand.access, dialect.remove(errand.access.base_url, file_id))
            if response.status not in (200, 404):
                return self._refused(errand.access, response)
        return e.Done()

    def _send(self, access: PoolAccess, ask: Ask) -> Response:
        return self._wire.send(ask, to_pool(access), deadline_s=self._request_s)

    def _refused(self, access: PoolAccess, response: Response) -> e.Refused:
        return e.Refused(failure=_failure(access, response, self._clock_ms()))


def dialect_of(access: PoolAccess) -> BulkDialect:
    """The pool's Batch API."""
    if access.dialect is None:
        raise ValueError(f"pool {access.name} has no Batch API")
    return access.dialect


def to_pool(access: PoolAccess) -> To:
    """The key and headers of requests to a pool."""
    return To(pool=access.name, headers=dialect_of(access).headers(access.pool))


def _failure(access: PoolAccess, response: Response, now_ms: int) -> Failure:
    found = access.adapter.reply(response, now_ms=now_ms).failure
    return failure(Signal.UNEXPECTED_SHAPE, status=response.status) if found is None else found

"""Switches readers to a new version, merges parts and sweeps: what begins here runs beside the loop and lands here.

An intent is recorded when a batch has passed its gates and its dataset has no other intent open; it is done after its
commit; its result is recorded when it lands. All three are repeated harmlessly.
"""

import logging
from concurrent.futures import Future

from nightmill.kernel.runtime.observe import metrics
from nightmill.kernel.runtime.service import Delete, Unavailable
from nightmill.kernel.wire.messages import DatasetVersion, PartRow, PublicationRow
from nightmill.kernel.wire.values import replace
from nightmill.publisher import batches
from nightmill.publisher.desk import Desk
from nightmill.publisher.effects import MergeParts, PartsMerged, Result, SweepParts, Swept, SwitchVersion
from nightmill.publisher.gates import check
from nightmill.publisher.moves import batch_keys, follow
from nightmill.publisher.notices import batch_published
from nightmill.publisher.targets.port import Incomplete, Overtaken, Publication, Published

log = logging.getLogger(__name__)

_RETRY_MS = 1_000  #: an outage of a target is waited out so long before the next try
SWEEP_EVERY_MS = 3_600_000
_SWEEP_OLDER_MS = 24 * 3_600_000
_SWEEP_BATCHES_MS = 3 * 24 * 3_600_000  #: batches that changed since then may have files to sweep


def intend(desk: Desk, batch_id: str) -> None:
    """Record the intent to switch, if the dataset has none open."""
    book = desk.named(batch_id)
    dataset = desk.dataset(book.dataset_id)
    if dataset.intent is not None:
        return
    del desk.ready[batch_id]
    version, row = dataset.switch_seq + 1, book.row(desk.part.now_ms)
    intent = DatasetVersion(
        version=version,
        batch_id=batch_id,
        generation=book.generation,
        location=desk.target(book).location(version, batch_id, book.generation),
        rows=row.counts.accepted,
        state=batches.published_state(row.counts),
        published_at_ms=desk.part.now_ms,
    )
    desk.set_dataset(replace(dataset, switch_seq=version, intent=intent))
    desk.refresh(book)
    log.info("switch intended", extra={"action": "switch_intended", **batch_keys(row), "version": version})


def plan_switches(desk: Desk) -> None:
    """Start the intents that are committed, or will be by the commit after which these effects start."""
    for dataset_id in sorted(desk.intents - desk.fresh_intents):
        key = f"switch/{dataset_id}"
        if desk.free(key):
            desk.launch(_switch_of(desk, key, dataset_id))


def plan_upkeep(desk: Desk) -> None:
    """Start what is due: merges of many parts, the hourly sweep."""
    for book in desk.books.values():
        key = f"merge/{book.batch_id}"
        if not book.ended and desk.free(key) and (rows := book.mergeable()):
            merge = MergeParts(
                key=key,
                partition=desk.part.number,
                target=desk.target(book),
                batch_id=book.batch_id,
                rows=tuple(rows),
            )
            desk.launch(merge)
    if desk.part.now_ms >= desk.sweep_at_ms:
        desk.sweep_at_ms = desk.part.now_ms + SWEEP_EVERY_MS
        _sweep(desk)


def _switch_of(desk: Desk, key: str, dataset_id: str) -> SwitchVersion:
    intent = desk.dataset(dataset_id).intent
    assert intent is not None
    book = desk.named(intent.batch_id)
    row = book.row(desk.part.now_ms)
    assert row.sealed is not None
    assert book.pipeline is not None
    pipeline = book.pipeline
    publication = Publication(
        dataset_id=dataset_id,
        version=intent.version,
        job_id=row.job_id,
        batch_id=row.batch_id,
        generation=intent.generation,
        state=intent.state,
        pipeline=pipeline,
        pipeline_digest=row.sealed.pipeline_digest,
        input_manifest=row.sealed.manifest_digest,
        planned=row.sealed.planned,
        refused_rows=row.sealed.refused_rows,
        counts=row.counts,
        totals=row.totals,
        gold=row.gold,
        gates=check(row.counts, row.sealed.planned, row.gold, pipeline.gates, partial=pipeline.publish.partial),
        approved=row.approved,
        accounting=tuple(book.accounting()),
        parts=tuple(sorted(book.parts)),
        published_at_ms=intent.published_at_ms,
    )
    return SwitchVersion(key=key, partition=desk.part.number, target=desk.target(book), publication=publication)


def _sweep(desk: Desk) -> None:
    since_ms = desk.part.now_ms - _SWEEP_BATCHES_MS
    for row in list(desk.part.table(PublicationRow).prefix("")):
        key = f"sweep/{row.batch_id}"
        if row.updated_at_ms < since_ms or not desk.free(key):
            continue
        book = desk.named(row.batch_id)
        if book.pipeline is None:
            continue
        effect = SweepParts(
            key=key,
            partition=desk.part.number,
            target=desk.target(book),
            batch_id=row.batch_id,
            named=frozenset(book.parts),
            before_ms=desk.part.now_ms - _SWEEP_OLDER_MS,
        )
        desk.launch(effect)


def land(desk: Desk, key: str, future: "Future[Result]") -> None:
    """An effect ended. Its place being away is waited out; any other exception is a defect and ends the process."""
    try:
        result = future.result()
    except Unavailable as error:
        desk.effect_waits(key, str(error), _RETRY_MS)
        log.warning("effect waits", extra={"action": "effect_waits", "effect": key, "reason": str(error)})
        return
    desk.effect_done(key)
    match result:
        case Published() | Overtaken() | Incomplete():
            _switched(desk, key.removeprefix("switch/"), result)
        case PartsMerged():
            _merged(desk, result)
        case Swept():
            log.info("parts swept", extra={"action": "parts_swept", "effect": key, "files": result.files})


def _switched(desk: Desk, dataset_id: str, result: Published | Overtaken | Incomplete) -> None:
    dataset, now_ms = desk.dataset(dataset_id), desk.part.now_ms
    intent = dataset.intent
    if intent is None:
        return
    book = desk.named(intent.batch_id)
    row = book.row(now_ms)
    match result:
        case Published():
            version = replace(intent, location=result.location, rows=result.rows, published_at_ms=now_ms)
            desk.set_dataset(replace(dataset, intent=None, versions=(*dataset.versions, version)))
            following = batches.published(row, version.version, version.location, now_ms)
            desk.sends.append(batch_published(following.row, version, result.bytes))
            metrics.count("publications", state=following.row.state.value)
            follow(desk, book, following)
        case Overtaken():
            highest = max(dataset.switch_seq, result.highest)
            desk.set_dataset(replace(dataset, intent=None, switch_seq=highest))
            desk.ready[book.batch_id] = None
            log.warning(
                "switch overtaken",
                extra={"action": "switch_overtaken", **batch_keys(row), "highest": highest},
            )
        case Incomplete():
            desk.set_dataset(replace(dataset, intent=None))
            follow(desk, book, batches.unpublishable(row, result.reason, now_ms))
            # it would be found complete and tried again at once; a person's approval or a restart tries again
            desk.touched.discard(book.batch_id)


def _merged(desk: Desk, result: PartsMerged) -> None:
    first = result.replaced[0]
    book = desk.named(first.batch_id)
    row = PartRow(
        part_id=f"{first.batch_id}/{result.part.digest}",
        batch_id=first.batch_id,
        generation=max(part.generation for part in result.replaced),
        digest=result.part.digest,
        rows=result.part.rows,
        bytes=result.part.bytes,
        tier=first.tier + 1,
        staged_at_ms=desk.part.now_ms,
    )
    for part in result.replaced:
        book.parts.pop(part.digest, None)
        desk.deletes.append(Delete(row=PartRow, key=part.part_id))
    book.parts[row.digest] = row
    desk.puts.append(row)
    log.info(
        "parts merged",
        extra={"action": "parts_merged", "batch_id": first.batch_id, "tier": row.tier, "rows": row.rows},
    )

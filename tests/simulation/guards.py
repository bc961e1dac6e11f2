"""Guards and the proof that each is needed: with one switched off, a seed must fail (what it protects is then broken).

`seeds` are such that catch it under `focus`; `simulation.find` looks for others. Those of leases and of the bulk lane
are in `simulation.lease_guards` and `simulation.bulk.guards`.
"""

from dataclasses import dataclass

from simulation import removals
from simulation.mix import Focus
from simulation.removals import Off

#: one slot for two gateways, and time enough for leases to end
ONE_SLOT = {
    "slots": 1,
    "items": 20,
    "jobs": 1,
    "requests_per_minute": None,
    "input_tokens_per_minute": None,
    "tempo_ms": 60,
    "turns": 1200,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """One guard of the product."""

    name: str
    where: str
    protects: str
    off: Off
    focus: Focus  #: what it is there for
    invariants: tuple[str, ...]  #: of which one fails without it
    seeds: tuple[int, ...]


GUARDS: tuple[Guard, ...] = (
    Guard(
        name="dedup-of-plans",
        where="dispatcher.items._heard_of",
        protects="an item that is planned twice for one batch is settled once",
        off=removals.dedup_of_plans,
        focus=Focus(("rewind",)),
        invariants=("each waiter is settled once",),
        seeds=(10, 15),
    ),
    Guard(
        name="dedup-of-judgements",
        where="dispatcher.judge.is_current: the state",
        protects="a judgement that comes twice moves an item once",
        off=removals.dedup_of_judgements,
        focus=Focus(("repeat_record", "server_error")),
        invariants=("IllegalMove", "each waiter is settled once"),
        seeds=(0, 2),
    ),
    Guard(
        name="current-attempt",
        where="dispatcher.judge.is_current: ordinal and minting time",
        protects="the judgement of an attempt that was given up says nothing of the one under way",
        off=removals.current_attempt,
        focus=Focus(("repeat_record", "wrong", "server_error")),
        invariants=("nothing is charged twice", "an attempt is minted once"),
        seeds=(3,),
    ),
    Guard(
        name="dead-waiters",
        where="dispatcher.fence.standing",
        protects="nothing is called or settled for a batch that was cancelled or goes on in a newer generation",
        off=removals.dead_waiters,
        focus=Focus(("command", "server_error")),
        invariants=("nothing starts for a batch that stands still", "every queue drains"),
        seeds=(2, 3),
    ),
    Guard(
        name="generation-of-waiters",
        where="dispatcher.fence.standing: a newer generation",
        protects="what an older generation of a batch waits for is neither called nor settled for it any more",
        off=removals.generation_of_waiters,
        focus=Focus(
            (),
            {"tight_budget": True, "jobs": 1, "items": 20, "slots": 1, "repairs": 0, "turns": 1200},
            {"backlog": 0.03},
        ),
        invariants=("nothing starts for a batch that stands still", "an older generation is told nothing"),
        seeds=(23,),
    ),
    Guard(
        name="words-not-here-yet",
        where="dispatcher.service.on_item_planned: a word that is not here yet, or an older one",
        protects="a plan whose batch's word is not in view yet waits, whatever an older word says",
        off=removals.words_not_here_yet,
        focus=Focus(
            (),
            {**ONE_SLOT, "jobs": 3, "equal_jobs": False, "tight_budget": False, "tempo_ms": 10, "idle_ms": (50, 250)},
            {"late_view": 0.06, "command": 0.06},
        ),
        invariants=("no live waiter is forgotten", "every queue drains"),
        seeds=(1, 4),
    ),
    Guard(
        name="fenced-ticks",
        where="kernel.runtime.loop.Loop._commit: positions with every transaction",
        protects="what the tick of a zombie decides is not committed beside its successor's",
        off=removals.fenced_ticks,
        focus=Focus(("pause_in_step", "server_error")),
        invariants=("an attempt is minted once", "states go forward", "terminal states absorb"),
        seeds=(10,),
    ),
    Guard(
        name="row-before-calls",
        where="provider_gateway.service.on_shard_dispatched: calls are an effect",
        protects="a call is made only for a shard whose row is committed",
        off=removals.row_before_calls,
        focus=Focus(
            ("crash", "crash_before_commit", "server_error"), {"slots": 2, "commit_every_ms": 300, "turns": 1200}
        ),
        invariants=("an attempt is called at most once",),
        seeds=(10,),
    ),
    Guard(
        name="known-shards",
        where="provider_gateway.service.on_shard_dispatched: the row",
        protects="a shard that is sent again is not run again",
        off=removals.known_shards,
        focus=Focus(("rewind",)),
        invariants=("an attempt is called at most once", "terminal states absorb"),
        seeds=(2,),
    ),
    Guard(
        name="shards-of-others",
        where="provider_gateway.recovery.what_is_known: ran_here",
        protects="a shard that another instance ran is not sent again from here",
        off=removals.shards_of_others,
        focus=Focus(("crash", "restart")),
        invariants=("an attempt is called at most once", "published = accepted"),
        seeds=(97,),
    ),
    Guard(
        name="outbox-mark",
        where="provider_gateway.outbox.write: marks",
        protects="a call that may have been made is not made again under its id",
        off=removals.outbox_mark,
        focus=Focus(("crash",)),
        invariants=("an attempt is called at most once",),
        seeds=(19,),
    ),
    Guard(
        name="outbox-answer",
        where="provider_gateway.outbox.write: answers",
        protects="an answer that was received is not lost with its process",
        off=removals.outbox_answer,
        focus=Focus(("crash", "crash_before_commit")),
        invariants=("an answer that landed is known",),
        seeds=(3,),
    ),
    Guard(
        name="dedup-of-settlements",
        where="publisher.accounting.Chunk.change_by",
        protects="a settlement that comes twice counts once",
        off=removals.dedup_of_settlements,
        focus=Focus(("repeat_record",)),
        invariants=("the publisher's books agree", "nothing is lost", "nothing is charged twice", "every queue drains"),
        seeds=(3,),
    ),
    Guard(
        name="spend-stop",
        where="publisher.batches.overspent",
        protects="a batch whose budget is spent starts nothing more",
        off=removals.spend_stop,
        focus=Focus((), {"tight_budget": True, "items": 20, "jobs": 1, "slots": 1}),
        invariants=("spend never above budget",),
        seeds=(15,),
    ),
    Guard(
        name="exclusive-pointer",
        where="publisher.targets.files.FilesTarget._switch: hardlink_to",
        protects="a version that another installation has published into the same folder is not replaced",
        off=removals.exclusive_pointer,
        focus=Focus(("stranger",)),
        invariants=("readers see what is published",),
        seeds=(0, 2),
    ),
    Guard(
        name="commands-once",
        where="publisher.batches.command",
        protects="a command that comes twice is obeyed once",
        off=removals.commands_once,
        focus=Focus(("command", "repeat_record", "server_error"), {"completion": 1.0, "partial": False}),
        invariants=("a command is obeyed once",),
        seeds=(4,),
    ),
    Guard(
        name="reconciliation",
        where="publisher.batches.complete",
        protects="nothing is published before every planned item is accounted for",
        off=removals.reconciliation,
        focus=Focus(()),
        invariants=("nothing is lost",),
        seeds=(0,),
    ),
    Guard(
        name="switch-intent",
        where="publisher.switching.intend: effects after the commit",
        protects="readers are switched only by a committed decision, so that a cancel can not race it",
        off=removals.switch_intent,
        focus=Focus(("command", "crash_before_commit")),
        invariants=("the publisher's books agree", "readers see what is published"),
        seeds=(3,),
    ),
    Guard(
        name="no-cancel-while-switching",
        where="publisher.desk.Desk.switching",
        protects="a batch whose switch is committed is not cancelled any more",
        off=removals.no_cancel_while_switching,
        focus=Focus(("command",)),
        invariants=("IllegalMove", "readers see what is published"),
        seeds=(46,),
    ),
    Guard(
        name="versions-of-attempts",
        where="ledger.columns.attempt_versions",
        protects="an older word on an attempt does not replace a newer one",
        off=removals.versions_of_attempts,
        focus=Focus(("move", "rewind")),
        invariants=("ledger = bill", "an answer that landed is known"),
        seeds=(32,),
    ),
)


def by_name(name: str) -> Guard:
    return next(guard for guard in GUARDS if guard.name == name)

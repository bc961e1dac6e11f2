"""Failure classes and what each one means for an item (E8, E9).

Recognising a provider's signal is the adapter's work; the classes and their consequences are common to all.
"""

from enum import StrEnum


class FailureClass(StrEnum):
    """Classes with a policy of their own (E8)."""

    TRANSIENT = "transient"  #: backoff with jitter, honour Retry-After
    CAPACITY = "capacity"  #: wait; the retry budget is untouched
    BAD_INPUT = "bad_input"  #: permanent; dead letter
    OUTPUT_INVALID = "output_invalid"  #: one repair, then review
    POLICY = "policy"  #: refusal or filter; review, never a blind retry
    ACCOUNT = "account"  #: key, credit or configuration: the pool stops, items stay queued
    DOWNSTREAM = "downstream"  #: our own write; replay it, never call the model again
    INTERNAL = "internal"  #: a record that could not be read; its item must still end


class Billed(StrEnum):
    """Whether the provider charged for a call."""

    NO = "no"
    YES = "yes"
    UNKNOWN = "unknown"  #: the reservation is kept

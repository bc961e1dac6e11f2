"""What is known of an open attempt when its shard is taken up again, after a restart or a move. Pure."""

from enum import StrEnum


class Known(StrEnum):
    """How far the attempt's call had come."""

    LANDED = "landed"  #: its answer is in the outbox: publish it
    UNDER_WAY = "under_way"  #: this process is making the call: its end will come
    MARKED = "marked"  #: an earlier life was about to send it: nobody knows
    ELSEWHERE = "elsewhere"  #: another instance ran it and has the marks: not known until its calls must be over
    NOT_SENT = "not_sent"  #: surely: it may be sent under the same id


def what_is_known(*, landed: bool, under_way: bool, marked: bool, ran_here: bool) -> Known:
    """The most certain thing first: an answer counts whoever ran the shard since."""
    if landed:
        return Known.LANDED
    if under_way:
        return Known.UNDER_WAY
    if marked:
        return Known.MARKED
    return Known.NOT_SENT if ran_here else Known.ELSEWHERE

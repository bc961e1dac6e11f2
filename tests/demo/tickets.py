"""Tickets of a shop, made up: the same ones for the same seed, with the team that each is for (pure)."""

from collections.abc import Iterator, Mapping
from random import Random

_SENTENCES: Mapping[str, tuple[str, ...]] = {
    "billing": ("I was charged twice for this order.", "Please send me a copy of the invoice."),
    "access": ("I cannot sign in since this morning.", "We want to add a second seat to our account."),
    "delivery": ("The parcel never came, though it is marked as handed over.", "Please send it to another address."),
    "other": ("Do you have it in green?", "Your shop in the old town is lovely."),
}
_SUBJECTS = ("Question", "Order {order}", "Help, please", "Re: order {order}", "Your shop", "Problem")
_SMALL_TALK = (
    "I have bought from you for {years} years and was always content.",
    "Order {order} was placed on a {day}, as you can see in your books.",
    "My neighbour, who also buys from you, gave me this address.",
    "I tried the telephone first and was told to write.",
    "Please do not answer with a form letter.",
    "If you need more from me, I am here on every {day}.",
    "The number on the label ends in {order}.",
    "I have {years} of these already, and they are all in use.",
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
#: sentences around the one that counts; every other ticket is a long one
_SHORT, _LONG = (1, 6), (60, 120)


def tickets(count: int, seed: int) -> Iterator[dict[str, str]]:
    """`count` rows with id, subject, body and team, no two of them equal."""
    draw = Random(seed)
    for number in range(count):
        team = draw.choice(tuple(_SENTENCES))
        body = [_filled(draw, _SMALL_TALK) for _ in range(draw.randint(*(_LONG if number % 2 else _SHORT)))]
        body.insert(draw.randint(0, len(body)), draw.choice(_SENTENCES[team]))
        yield {
            "id": f"T-{number:05d}",
            "subject": f"{_filled(draw, _SUBJECTS)} [T-{number:05d}]",
            "body": " ".join(body),
            "team": team,
        }


def _filled(draw: Random, sentences: tuple[str, ...]) -> str:
    facts = {"order": draw.randint(10_000, 99_999), "years": draw.randint(2, 9), "day": draw.choice(_DAYS)}
    return draw.choice(sentences).format(**facts)

"""`evidence: {quote: evidence, in: [body]}`: the quote in the answer stands in the source.

White space is normalised on both sides and nothing else: a quote that was improved is not a quote. A list of quotes
must hold in every member.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from nightmill.kernel.domain.pipeline import Frozen
from nightmill.validator.answer import Finding, lookup, shown
from nightmill.validator.rules.consequence import Consequence, kind_of


class Evidence(Frozen):
    """A quote that must be found in the source row."""

    needs_row: ClassVar[bool] = True

    quote: str
    within: tuple[str, ...] = Field(alias="in", min_length=1)
    otherwise: Consequence = Field(default="repair", alias="else")

    @property
    def looks_at(self) -> str:
        return self.quote

    def check(self, answer: Any, row: Mapping[str, Any] | None) -> Finding | None:
        found = lookup(answer, self.quote)
        quotes = found if isinstance(found, list) else [found]
        texts = [] if row is None else [row.get(column) for column in self.within]
        sources = [_normalised(str(text)) for text in texts if text is not None]
        for quote in quotes or [None]:
            wanted = _normalised(quote) if isinstance(quote, str) else ""
            if not wanted or not any(wanted in source for source in sources):
                return Finding(kind=kind_of(self.otherwise), rule="evidence", field=self.quote, value=shown(quote))
        return None


def _normalised(text: str) -> str:
    return " ".join(text.split())

"""From what a distribution says of its licence to one label, or to none when it does not say one thing (pure).

In order of trust: License-Expression (PEP 639, an SPDX expression), classifiers, the free License field. A distribution
that offers a choice or a mixture of labels has no single true answer and gets None.
"""

import re
from collections.abc import Iterable

LABELS = ("MIT", "Apache-2.0", "BSD", "MPL-2.0", "PSF-2.0", "Other")
_OTHER = "Other"
_LONGEST_STATEMENT = 120  #: a longer License field is a licence text, not a name

#: SPDX identifiers, https://spdx.org/licenses/ (read 2026-11-29)
_SPDX = (
    (re.compile(r"^MIT(-0)?$", re.IGNORECASE), "MIT"),
    (re.compile(r"^Apache-2\.0$", re.IGNORECASE), "Apache-2.0"),
    (re.compile(r"^BSD-[1-4]-Clause", re.IGNORECASE), "BSD"),
    (re.compile(r"^MPL-2\.0", re.IGNORECASE), "MPL-2.0"),
    (re.compile(r"^(PSF|Python)-2\.0", re.IGNORECASE), "PSF-2.0"),
)

#: last parts of trove classifiers, https://pypi.org/classifiers/ (read 2026-11-29)
_CLASSIFIERS = {
    "MIT License": "MIT",
    "MIT No Attribution License (MIT-0)": "MIT",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
_CLASSIFIER_SAYS_NOTHING = frozenset({"OSI Approved", "DFSG approved", "Other/Proprietary License"})

#: free texts, after punctuation and the words around the name are gone
_STATEMENTS = (
    (re.compile(r"^mit( 0)?$|^expat$"), "MIT"),
    (re.compile(r"^(apache|apache software|asl|al)( v?2(\.0)?)$|^apache$|^apache software$"), "Apache-2.0"),
    (re.compile(r"^(new |modified |simplified |revised )?bsd( [1-4])?( clause)?$|^[1-4] clause bsd$"), "BSD"),
    (re.compile(r"^(mpl|mozilla public) ?v?2(\.0)?( mpl 2\.0)?$"), "MPL-2.0"),
    (re.compile(r"^(psf|psfl|python|python software foundation)( v?2(\.0)?)?$"), "PSF-2.0"),
    (re.compile(r"^(gnu )?[al]?gpl ?(v?[23](\.\d)?)?\+?( or later| only)?$|^gnu .*general public"), _OTHER),
    (re.compile(r"^(isc|iscl|zlib|unlicense|public domain|zpl( 2\.1)?|wtfpl|0bsd|cc0( 1\.0)?|mit cmu|hpnd)$"), _OTHER),
)
_AROUND = re.compile(r"\b(the|licen[cs]ed?|under|version|style)\b")
_PUNCTUATION = re.compile(r"[\s,_()/-]+")


def label_of(expression: str | None, classifiers: Iterable[str], statement: str | None) -> tuple[bool, str | None]:
    """(whether a licence is stated, its label). None as label: stated, but not as one of the labels alone."""
    if expression and expression.strip():
        return True, of_expression(expression)
    labels = [label for each in classifiers if (label := of_classifier(each)) is not None]
    if labels:
        return True, labels[0] if len(set(labels)) == 1 else None
    text = (statement or "").strip()
    if not text or text.upper() == "UNKNOWN" or len(text) > _LONGEST_STATEMENT or "\n" in text:
        return False, None
    return True, of_statement(text)


def of_expression(expression: str) -> str | None:
    """Label of an SPDX expression; an exception (WITH …) leaves its licence what it is."""
    plain = re.sub(r"\bWITH\s+[\w.+-]+", "", expression, flags=re.IGNORECASE)
    names = [name for name in re.split(r"\s+(?:AND|OR)\s+|[()\s]+", plain.strip(), flags=re.IGNORECASE) if name]
    labels = {next((label for pattern, label in _SPDX if pattern.match(name)), _OTHER) for name in names}
    return labels.pop() if len(labels) == 1 else None


def of_classifier(classifier: str) -> str | None:
    """Label of one classifier; None when it is no licence or names none."""
    parts = [part.strip() for part in classifier.split("::")]
    if parts[0] != "License" or parts[-1] in _CLASSIFIER_SAYS_NOTHING:
        return None
    return _CLASSIFIERS.get(parts[-1], _OTHER)


def of_statement(statement: str) -> str | None:
    """Label of a free text that holds a name; None for a text that is not understood."""
    plain = _PUNCTUATION.sub(" ", _AROUND.sub(" ", statement.lower())).strip(" .\"'")
    return next((label for pattern, label in _STATEMENTS if pattern.match(plain)), None)

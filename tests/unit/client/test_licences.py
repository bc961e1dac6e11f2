"""From a distribution's words to a label: a table, and what must hold for any words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.client.licences import LABELS, label_of, of_classifier, of_expression, of_statement


@pytest.mark.parametrize(
    ("expression", "label"),
    [
        ("MIT", "MIT"),
        ("mit", "MIT"),
        ("MIT-0", "MIT"),
        ("MIT-CMU", "Other"),
        ("Apache-2.0", "Apache-2.0"),
        ("Apache-2.0 WITH LLVM-exception", "Apache-2.0"),
        ("BSD-3-Clause", "BSD"),
        ("BSD-2-Clause-Patent", "BSD"),
        ("BSD-2-Clause AND BSD-3-Clause", "BSD"),
        ("0BSD", "Other"),
        ("MPL-2.0", "MPL-2.0"),
        ("PSF-2.0", "PSF-2.0"),
        ("Python-2.0.1", "PSF-2.0"),
        ("LGPL-2.1-or-later", "Other"),
        ("AGPL-3.0-only", "Other"),
        ("GPL-2.0-or-later WITH GCC-exception-2.0", "Other"),
        ("ISC", "Other"),
        ("MIT OR Apache-2.0", None),
        ("Apache-2.0 AND MIT", None),
        ("(MIT)", "MIT"),
        ("(MIT OR Apache-2.0) AND BSD-3-Clause", None),
        ("LicenseRef-Proprietary", "Other"),
    ],
)
def test_spdx_expressions(expression: str, label: str | None) -> None:
    assert of_expression(expression) == label


@pytest.mark.parametrize(
    ("classifier", "label"),
    [
        ("License :: OSI Approved :: MIT License", "MIT"),
        ("License :: OSI Approved :: Apache Software License", "Apache-2.0"),
        ("License :: OSI Approved :: BSD License", "BSD"),
        ("License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)", "MPL-2.0"),
        ("License :: OSI Approved :: Python Software Foundation License", "PSF-2.0"),
        ("License :: OSI Approved :: GNU Lesser General Public License v3 (LGPLv3)", "Other"),
        ("License :: OSI Approved :: ISC License (ISCL)", "Other"),
        ("License :: OSI Approved", None),
        ("Programming Language :: Python :: 3", None),
    ],
)
def test_classifiers(classifier: str, label: str | None) -> None:
    assert of_classifier(classifier) == label


@pytest.mark.parametrize(
    ("statement", "label"),
    [
        ("MIT", "MIT"),
        ("MIT License", "MIT"),
        ("The MIT License (MIT)", None),  # said twice: not worth a rule
        ("Apache 2.0", "Apache-2.0"),
        ("Apache License, Version 2.0", "Apache-2.0"),
        ("Apache-2.0", "Apache-2.0"),
        ("Apache Software License 2.0", "Apache-2.0"),
        ("ASL 2", "Apache-2.0"),
        ("BSD", "BSD"),
        ("3-Clause BSD License", "BSD"),
        ("BSD 3-Clause", "BSD"),
        ("New BSD", "BSD"),
        ("MPL 2.0", "MPL-2.0"),
        ("Mozilla Public License 2.0", "MPL-2.0"),
        ("PSF", "PSF-2.0"),
        ("Python Software Foundation License", "PSF-2.0"),
        ("LGPLv3+", "Other"),
        ("GPL-3.0", "Other"),
        ("GNU Lesser General Public License", "Other"),
        ("ISC License", "Other"),
        ("see LICENSE.txt", None),
        ("commercial", None),
    ],
)
def test_free_statements(statement: str, label: str | None) -> None:
    assert of_statement(statement) == label


@pytest.mark.parametrize(
    ("expression", "classifiers", "statement", "found"),
    [
        ("MIT", ["License :: OSI Approved :: BSD License"], "GPL", (True, "MIT")),
        (None, ["License :: OSI Approved :: BSD License"], "GPL", (True, "BSD")),
        (
            None,
            ["License :: OSI Approved :: BSD License", "License :: OSI Approved :: MIT License"],
            None,
            (True, None),
        ),
        (None, ["License :: OSI Approved"], "BSD", (True, "BSD")),
        (None, [], "Permission is hereby granted,\nfree of charge", (False, None)),
        (None, [], "UNKNOWN", (False, None)),
        ("", [], "", (False, None)),
        (None, [], "my own words", (True, None)),
    ],
)
def test_which_words_count(
    expression: str | None, classifiers: list[str], statement: str | None, found: tuple[bool, str | None]
) -> None:
    assert label_of(expression, classifiers, statement) == found


@given(st.none() | st.text(), st.lists(st.text()), st.none() | st.text())
def test_any_words_give_a_label_or_none(expression: str | None, classifiers: list[str], statement: str | None) -> None:
    stated, label = label_of(expression, classifiers, statement)
    assert label is None or (stated and label in LABELS)

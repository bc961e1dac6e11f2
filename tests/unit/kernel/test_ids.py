"""Identities: what makes two keys equal, and what can be told from an id."""

import base64
import re
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.kernel.domain import ids

IDENTITY = ids.ItemIdentity(
    tenant="acme",
    source_id="t-1",
    source_version="v1",
    pipeline="tickets",
    transform_version="a",
    prompt_version="b",
    model_policy_version="c",
    output_schema_version="d",
)
NAMES = st.from_regex(ids.NAME, fullmatch=True)


def test_a_key_is_stable() -> None:
    """M3: a key that changed with the code would pay for everything again."""
    assert ids.item_key(IDENTITY) == "JBFRvnRaKANxM_hOUnc1YURoO-Raf7H0KXYcPJQrnkI"


@pytest.mark.parametrize("name", [field.name for field in fields(ids.ItemIdentity)])
def test_each_part_of_the_identity_makes_another_key(name: str) -> None:
    """M3."""
    assert ids.item_key(replace(IDENTITY, **{name: "other"})) != ids.item_key(IDENTITY)


@given(st.lists(st.text(), max_size=5), st.lists(st.text(), max_size=5))
def test_two_lists_of_fields_share_a_digest_only_if_equal(one: list[str], other: list[str]) -> None:
    """M3: no separator can be forged: ("ab", "c") is not ("a", "bc")."""
    assert (ids.fields_digest(*one) == ids.fields_digest(*other)) == (one == other)


@given(st.text(), st.text())
def test_moving_text_between_fields_makes_another_key(source_id: str, version: str) -> None:
    moved = replace(IDENTITY, source_id=source_id + version, source_version="")
    apart = replace(IDENTITY, source_id=source_id, source_version=version)
    assert (ids.item_key(moved) == ids.item_key(apart)) == (version == "")


@given(st.text(), st.integers(1, 10**6))
def test_an_attempt_id_is_a_providers_custom_id(source_id: str, ordinal: int) -> None:
    """E6: at most 64 of [A-Za-z0-9_-], from key and ordinal, and both can be told from it."""
    key = ids.item_key(replace(IDENTITY, source_id=source_id))
    attempt = ids.attempt_id(key, ordinal)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", attempt)
    assert attempt.rsplit("-", 1) == [key, str(ordinal)]
    assert len(base64.urlsafe_b64decode(key + "=")) == 32


@given(NAMES, NAMES, st.integers(0, 4_102_444_800_000), st.from_regex(r"[a-z0-9]{4}", fullmatch=True))
def test_everything_of_a_dataset_can_be_told_from_its_own_id(tenant: str, pipeline: str, at_ms: int, end: str) -> None:
    """M1: job begins with its dataset, batch with its job."""
    dataset = ids.dataset_id(tenant, pipeline)
    job = ids.job_id(dataset, at_ms, end)
    batch = ids.batch_id(job)
    assert job.startswith(dataset + ".")
    assert ids.job_of(batch) == job
    assert ids.dataset_of(job) == ids.dataset_of(batch) == dataset
    assert ids.block_id(batch, 3, 8_192).split("/") == [batch, "3", "8192"]


def test_jobs_of_a_dataset_sort_by_time() -> None:
    """2026-11-29 12:00:00 UTC is 1,795,953,600 s."""
    at_ms = 1_795_953_600_000
    assert ids.job_id("acme.tickets", at_ms, "zzzz") == "acme.tickets.20261129-120000-zzzz"
    assert ids.job_id("acme.tickets", at_ms, "zzzz") < ids.job_id("acme.tickets", at_ms + 1_000, "aaaa")


@pytest.mark.parametrize("name", ["a", "a1", "licence-audit", "a" * 63, "0"])
def test_names_that_separate_safely(name: str) -> None:
    assert ids.NAME.fullmatch(name)


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a.b", "a/b", "a_b", "a b", "é", "a" * 64, "a\n"])
def test_names_that_do_not(name: str) -> None:
    assert not ids.NAME.match(name)


def test_a_digest_is_sha256_in_hex() -> None:
    assert ids.digest(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

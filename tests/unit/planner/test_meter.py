"""How many tokens a row is, on the pools that may take it, and which rows share a prefix (P4)."""

import math

from nightmill.kernel.domain.pipeline import canonical_json
from nightmill.kernel.domain.prompt import parse_prompt
from nightmill.planner.meter import Measure, Meter
from nightmill.planner.tokens import count_tokens
from unit.planner.makers import POOLS, make_embedding, make_pipeline

O200K = "o200k_base"


def of(text: str, encoding: str = O200K) -> int:
    return count_tokens([text], encoding)[0]


def test_counting_takes_special_tokens_as_plain_text() -> None:
    """P4: the first two counts are those that toktok documents for cl100k."""
    assert count_tokens(["hello world", "how many tokens?", ""], "cl100k_base") == [2, 4, 0]
    assert count_tokens(["<|endoftext|>"], "cl100k_base")[0] > 1


def test_a_row_on_an_exact_pool_with_structured_output() -> None:
    meter = Meter(make_pipeline(), [POOLS["mini"]], count_tokens)
    (measure,) = meter.measure([{"id": "a", "body": "My card is gone"}])
    texts = of("Sort the ticket.") + of("My card is gone")
    # two messages of 4 tokens each, 3 for the reply, and the schema
    assert measure == Measure(
        input_tokens=texts + 2 * 4 + 3 + of(canonical_json({"type": "object"}).decode()),
        prefix=parse_prompt(make_pipeline().prompt).prefix({}),
    )


def test_a_row_on_an_estimated_pool_is_rounded_up() -> None:
    pipeline = make_pipeline(prompt="{{ body }}")
    (measure,) = Meter(pipeline, [POOLS["big"]], count_tokens).measure([{"body": "My card is gone"}])
    assert isinstance(measure, Measure)
    # factor 1.5, one message, no schema
    assert measure.input_tokens == math.ceil(of("My card is gone") * 1.5) + 4 + 3


def test_a_text_to_embed_is_counted_as_it_is() -> None:
    """E7: no frame, no schema; and an empty one, which every provider refuses, is a bad row."""
    meter = Meter(make_embedding(), [POOLS["mini"]], count_tokens)
    measure, empty = meter.measure([{"body": "My card is gone"}, {"body": " "}])
    assert isinstance(measure, Measure)
    assert measure.input_tokens == of("My card is gone")
    assert empty == "the text to embed is empty"


def test_over_several_pools_the_greatest_count_holds() -> None:
    rows = [{"body": "short"}, {"body": "word " * 500}]
    both = Meter(make_pipeline(), list(POOLS.values()), count_tokens).measure(rows)
    alone = [Meter(make_pipeline(), [pool], count_tokens).measure(rows) for pool in POOLS.values()]
    for index, measure in enumerate(both):
        assert isinstance(measure, Measure)
        counts = [each[index] for each in alone]
        assert measure.input_tokens == max(c.input_tokens for c in counts if isinstance(c, Measure))


def test_a_row_whose_prompt_fails_is_named_and_the_others_are_measured() -> None:
    """P7: the text holds nothing of the document."""
    pipeline = make_pipeline(prompt="{{ body | float / 1 + body }}")
    meter = Meter(pipeline, [POOLS["mini"]], count_tokens)
    good, bad = meter.measure([{"body": 3}, {"body": "secret"}])
    assert isinstance(good, Measure)
    assert bad == "the prompt can not be rendered: TypeError in the template"


def test_only_the_inputs_fields_show_in_a_prompt() -> None:
    """M3: what is not part of the version must not change the prompt."""
    meter = Meter(make_pipeline(prompt="{{ who }}"), [POOLS["mini"]], count_tokens)
    (bad,) = meter.measure([{"body": "x", "who": "y"}])
    assert isinstance(bad, str)


def test_rows_share_a_prefix_when_their_system_part_is_equal() -> None:
    """E12"""
    pipeline = make_pipeline(
        input={"id": "id", "fields": ["kind", "body"]}, prompt="system:\n{{ kind }}\nuser:\n{{ body }}"
    )
    meter = Meter(pipeline, [POOLS["mini"]], count_tokens)
    measures = meter.measure([{"kind": kind, "body": body} for kind, body in ("aa", "ab", "ba")])
    prefixes = [measure.prefix for measure in measures if isinstance(measure, Measure)]
    assert prefixes[0] == prefixes[1] != prefixes[2]
    assert prefixes[0] == parse_prompt(pipeline.prompt).prefix({"kind": "a"})

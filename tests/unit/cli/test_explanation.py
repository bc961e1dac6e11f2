"""An explained item as text."""

from typing import Any

from nightmill.api.findings import ExplainedAttempt, ExplainedItem, Explanation, LaneNote, PromptMessage
from nightmill.cli.explanation import explanation
from nightmill.kernel.domain.lifecycle import Lane

OLD, NEW = "acme.tickets.20261129-120000-aaaa", "acme.tickets.20261130-120000-bbbb"


def attempt(job: str, key: str, ordinal: int, minted_at: str, **fields: Any) -> ExplainedAttempt:
    base: dict[str, Any] = dict.fromkeys(ExplainedAttempt.model_fields, "")
    figures = {"http_status": None, "input_tokens": 1_100, "cached_tokens": 0, "output_tokens": 7}
    money = {"cost_nano_usd": 1_500, "reserved_nano_usd": None, "started_at": None, "ended_at": None}
    name = {"attempt_id": f"{key}-{ordinal}", "job_id": job, "item_key": key, "ordinal": ordinal}
    said = {"state": "answered", "model": "tiny", "pool": "local", "minted_at": minted_at}
    flags = {"is_repair": False, "late": False}
    written = {"cache_write_tokens": None, "cache_write_1h_tokens": None}
    return ExplainedAttempt.model_validate(base | figures | written | money | name | said | flags | fields)


def item(**fields: Any) -> ExplainedItem:
    base: dict[str, Any] = dict.fromkeys(ExplainedItem.model_fields, "")
    figures = {"ordinal": 0, "generation": 1, "attempts": 2, "retries": 1, "repairs": 0, "unknown_attempts": 0}
    name = {"job_id": NEW, "item_key": "k2", "source_id": "bad", "outcome": "accepted", "reused": False}
    return ExplainedItem.model_validate(base | figures | name | {"cost_nano_usd": 3_000} | fields)


def test_calls_are_grouped_by_prompt_and_the_newest_come_first() -> None:
    """O2: calls of an older prompt are not numbered with those of the present one."""
    attempts = [
        attempt(OLD, "k1", 1, "2026-11-29 12:00:00.000"),
        attempt(OLD, "k1", 2, "2026-11-29 12:00:05.000", is_repair=True),
        attempt(NEW, "k2", 1, "2026-11-30 12:00:00.000", input_tokens=None, output_tokens=None, cost_nano_usd=None),
        attempt(NEW, "k2", 2, "2026-11-30 12:00:05.000"),
    ]
    answer = Explanation(
        id="bad", items=[item(), item()], attempts=attempts, prompt=None, prompt_note=None, next_command="nightmill"
    )
    assert explanation(answer).splitlines() == [
        "bad: accepted",
        f"  job       {NEW}, generation 1, item key k2",
        "  calls     2, of these 1 retry, 0 repairs; cost 0.000003 USD",
        "  also settled 1 time before, in other batches or generations",
        f"calls, for {NEW}:",
        "  call 1: answered, tiny on local, 2026-11-30 12:00:00.000, no usage reported, cost unknown (1 attempt)",
        "  call 2: answered, tiny on local, 2026-11-30 12:00:05.000, 1,100 tokens in, 7 out, cost 0.0000015 USD",
        f"calls with another prompt, schema, model or text, for {OLD}:",
        "  call 1: answered, tiny on local, 2026-11-29 12:00:00.000, 1,100 tokens in, 7 out, cost 0.0000015 USD",
        "  repair 2: answered, tiny on local, 2026-11-29 12:00:05.000, 1,100 tokens in, 7 out, cost 0.0000015 USD",
    ]


def test_a_call_says_its_tokens_by_class_and_the_prices_that_held() -> None:
    """O2, P4: what is not known is said to be, with what is reserved for it."""
    attempts = [
        attempt(NEW, "k2", 1, "2026-11-30 12:00:00.000", cost_nano_usd=None, reserved_nano_usd=2_000_000),
        attempt(NEW, "k2", 2, "2026-11-30 12:00:05.000", cached_tokens=400, price_version="7"),
        attempt(NEW, "k2", 3, "2026-11-30 12:00:09.000", cache_write_tokens=100, cache_write_1h_tokens=1_000),
    ]
    answer = Explanation(id="bad", items=[], attempts=attempts, prompt=None, prompt_note=None, next_command="nightmill")
    said = [line.partition(".000, ")[2] for line in explanation(answer).splitlines()[1:]]
    assert said == [
        "1,100 tokens in, 7 out, cost unknown (1 attempt), 0.002 USD reserved",
        "1,100 tokens in (400 cached), 7 out, cost 0.0000015 USD (prices 7)",
        "1,100 tokens in (1,100 written to a cache), 7 out, cost 0.0000015 USD",
    ]


def test_an_answer_can_not_steer_the_terminal() -> None:
    """P6: a document's or a model's control characters are written out."""
    answer = Explanation(
        id="bad",
        items=[item(source_id="b\x1b]0;x\x07ad")],
        attempts=[attempt(NEW, "k2", 1, "2026-11-30 12:00:00.000", output="one\n\x1b[2Jtwo")],
        prompt=[PromptMessage(role="user", content="\x9b31m")],
        prompt_note=None,
        next_command="nightmill",
    )
    lines = explanation(answer).splitlines()
    assert lines[0] == "b\\x1b]0;x\\x07ad: accepted"
    assert "  \\x9b31m" in lines
    assert lines[-2:] == ["      one", "      \\x1b[2Jtwo"]


def test_lanes_and_their_reasons_come_before_the_prompt() -> None:
    """P5, O2: and a call of the bulk lane is told from others."""
    lanes = [
        LaneNote(lane=Lane.BULK, since="2026-11-30 12:00:00.000", reason="there is no deadline; pools: sim"),
        LaneNote(lane=Lane.REALTIME, since=None, reason="the pipeline says lane: realtime; pools: sim"),
    ]
    attempts = [attempt(NEW, "k2", 1, "2026-11-30 12:00:00.000", lane="bulk")]
    told = Explanation(
        id="bad", items=[], attempts=attempts, lanes=lanes, prompt=None, prompt_note="gone", next_command="nightmill"
    )
    assert explanation(told).splitlines()[:5] == [
        "lane: bulk since 2026-11-30 12:00:00.000: there is no deadline; pools: sim",
        "lane: realtime: the pipeline says lane: realtime; pools: sim",
        "prompt: not shown, gone",
        f"calls, for {NEW}:",
        "  call 1: answered, tiny on local, bulk lane, 2026-11-30 12:00:00.000, 1,100 tokens in, 7 out, "
        "cost 0.0000015 USD",
    ]

"""`nightmill pool check`: whether a pool works, found out with one cheap call.

The list of models costs nothing and tells most: address, key, model, often the context. A call for one token (16 where
an API takes no less) follows when there is no such list, when the model is not in it (a provider may serve names that
it does not list), or when it is asked for, because most providers tell their rate limits only there.
"""

import difflib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from ipaddress import ip_address
from urllib.parse import urlsplit

from nightmill.kernel.domain.addresses import flaw
from nightmill.kernel.domain.pricing import Tariff, Tokens, cost_nano_usd, worst_cost_nano_usd
from nightmill.kernel.domain.settings import Config, LocalServers, Pool
from nightmill.local.errors import LaptopError
from nightmill.local.pools import verdict, wire
from nightmill.local.pools.call import NEVER_SENT, Answer, NoAnswer, Question, ask
from nightmill.local.pools.limits import Comparison, compared, told_limits
from nightmill.local.pools.listing import KeyState, key_state, tariff_of
from nightmill.local.pools.verdict import Finding, Weight
from nightmill.provider_gateway.adapters import ADAPTERS

_LIST_S = 20.0
_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a check found."""

    pool: str
    findings: tuple[Finding, ...]
    offered: tuple[str, ...]  #: models of the provider, those like the pool's first; at most ten
    offered_count: int
    limits: tuple[Comparison, ...]
    model_calls: int
    cost_nano_usd: int | None  #: of the model's calls; None: the price or what was used is not known

    def worst(self) -> Weight:
        """What matters most of all findings: what must be mended comes before what may pass by itself."""
        found = {finding.weight for finding in self.findings}
        return next(weight for weight in (Weight.MEND, Weight.AWAY, Weight.NOTE, Weight.OK) if weight in found)


def check_pool(
    name: str,
    config: Config,
    *,
    environment: Mapping[str, str],
    local_servers: LocalServers,
    with_call: bool,
    before_call: Callable[[int | None], None],
) -> Report:
    """What is right and wrong with a pool. Blocks for at most 20 s and the pool's call deadline.

    `with_call` asks for one token in any case; `before_call` is told at most how many nano-USD that costs, or None
    when the price is not known. Raises `LaptopError` for a pool that is not there.
    """
    pool = config.pools.get(name)
    if pool is None:
        known = ", ".join(config.pools) or "none"
        raise LaptopError(f"pools.yaml has no pool {name!r}", remedy=f"there are: {known}; nightmill pool add")
    tariff = tariff_of(pool, config.prices, now_ms=_now_ms())
    checking = _Checking(name, pool, tariff, environment=environment, local_servers=local_servers)
    if checking.can_be_asked():
        checking.look_at_models()
        if checking.needs_call(wanted=with_call):
            before_call(checking.call_costs_at_most())
            checking.call()
        checking.compare(called_in_vain=with_call)
    checking.look_at_price(config.prices.book_version)
    return checking.report()


class _Checking:
    """One check under way: what was learned, and the findings so far."""

    def __init__(
        self,
        name: str,
        pool: Pool,
        tariff: Tariff | None,
        *,
        environment: Mapping[str, str],
        local_servers: LocalServers,
    ) -> None:
        self._name, self._pool, self._tariff = name, pool, tariff
        self._url = local_servers.base_url(pool)
        self._key_state: KeyState | None = None
        self._key: str | None = None
        if pool.key is not None:
            self._key_state, self._key = key_state(pool.key, environment)
        self._asker = wire.Asker(pool, self._url or "", self._key)
        self._findings: list[Finding] = []
        self._offers: list[wire.Offer] | None = None
        self._headers: dict[str, str] = {}
        self._limits: tuple[Comparison, ...] = ()
        self._stopped = False
        self._model_calls = 0
        self._cost_nano_usd: int | None = 0

    def can_be_asked(self) -> bool:
        """Whether address and key are there, before anything is sent."""
        for finding in (self._provider(), self._address(), self._own_key()):
            self._findings.append(finding)
            if finding.weight is Weight.MEND or finding.weight is Weight.AWAY:
                return False
        return True

    def look_at_models(self) -> None:
        """Ask which models there are."""
        answer = self._asked(self._asker.models(), min(_LIST_S, self._pool.call_deadline))
        if answer is None or answer.status in verdict.NOT_SERVED:
            return
        if answer.status != HTTPStatus.OK:
            self._stop(self._refused(answer))
        elif wire.is_web_page(answer):
            self._stop(verdict.web_page())
        else:
            self._offers = wire.offers(answer)
            if self._offer() is not None:
                unrefused = "" if self._key is None else ", and the key not refused"
                self._note("model", f"{self._pool.model} is offered{unrefused}")

    def needs_call(self, *, wanted: bool) -> bool:
        """Whether only a call of the model can tell more."""
        return not self._stopped and (wanted or self._offer() is None)

    def call_costs_at_most(self) -> int | None:
        """In nano-USD; None: the price is not known."""
        if self._tariff is None:
            return None
        tokens = self._asker.answer_tokens
        return worst_cost_nano_usd(self._tariff, input_tokens=wire.QUESTION_TOKENS, max_output_tokens=tokens)

    def call(self) -> None:
        """Ask the model for the shortest answer."""
        self._model_calls, self._cost_nano_usd = 1, None
        answer = self._asked(self._asker.call(), self._pool.call_deadline)
        if answer is None:
            return
        if answer.status != HTTPStatus.OK:
            if answer.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                self._cost_nano_usd = 0  # refused before the model worked
            self._stop(self._refused(answer))
        elif wire.is_web_page(answer):
            self._stop(verdict.web_page())
        elif (said := self._said(answer)) is None:
            self._stop(verdict.not_understood("answer of a model"))
        else:
            used = wire.usage(answer)
            if used is not None and self._tariff is not None:
                given, made = used
                self._cost_nano_usd = cost_nano_usd(self._tariff, Tokens(fresh_input=given, output=made))
            listed = "" if self._offers is None or self._offer() is not None else ", though it is not in the list"
            self._note("call", f"{self._pool.model} {said}{listed}")

    def _said(self, answer: Answer) -> str | None:
        """What the model does by its answer; None: it has not the shape of one."""
        if self._pool.embeddings is None:
            return "answers" if wire.is_completion(answer) else None
        numbers = wire.dimensions(answer)
        return None if numbers is None else f"makes vectors of {numbers} numbers"

    def compare(self, *, called_in_vain: bool) -> None:
        """Limits and context, as far as the provider told them."""
        self._limits = tuple(compared(self._pool.limits, told_limits(self._headers, now_ms=_now_ms())))
        for each in self._limits:
            remedy = "" if each.suggested is None else f"set {each.field}: {each.suggested}"
            self._findings.append(
                Finding(about="limits", weight=Weight.NOTE if remedy else Weight.OK, detail=each.line(), remedy=remedy)
            )
        if not self._limits and not self._stopped:
            remedy = "" if called_in_vain or self._model_calls else "--call asks the model for a token, to see them"
            self._note("limits", "the provider tells none", remedy)
        offer = self._offer()
        if offer is not None and offer.context_tokens is not None:
            self._context(offer.context_tokens)

    def look_at_price(self, version: str) -> None:
        """Whether jobs that need this model would be admitted."""
        if self._tariff is not None:
            self._note("price", f"known (prices of {version})")
            return
        model = self._pool.model
        remedy = f"add to prices.yaml, below models: {model}: {{input_usd_per_million: …, output_usd_per_million: …}}"
        detail = f"{model} has none, and jobs that need it are refused"
        self._findings.append(Finding(about="price", weight=Weight.NOTE, detail=detail, remedy=remedy))

    def report(self) -> Report:
        names = [offer.model for offer in self._offers or ()]
        near = difflib.get_close_matches(self._pool.model, names, n=_SHOWN)
        offered = list(dict.fromkeys([*near, *sorted(names)]))
        return Report(
            pool=self._name,
            findings=tuple(self._findings),
            offered=tuple(offered[:_SHOWN]),
            offered_count=len(offered),
            limits=self._limits,
            model_calls=self._model_calls,
            cost_nano_usd=self._cost_nano_usd,
        )

    # -- before anything is sent

    def _provider(self) -> Finding:
        provider = self._pool.provider
        if provider in ADAPTERS:
            return Finding(about="provider", weight=Weight.OK, detail=provider)
        remedy = f"use one of: {', '.join(sorted(ADAPTERS))}"
        return Finding(about="provider", weight=Weight.MEND, detail=f"{provider!r} is not known", remedy=remedy)

    def _address(self) -> Finding:
        if self._url is None:
            missing, remedy = "model", "nightmill up --detach"
            if self._pool.embeddings is not None:
                missing, remedy = "embeddings model", "make setup-model, then nightmill up --detach"
            detail = f"the local {missing} does not run"
            return Finding(about="address", weight=Weight.AWAY, detail=detail, remedy=remedy)
        wrong = flaw(self._url)
        if wrong is not None:
            remedy = "mend base_url in pools.yaml: http or https, host and path, such as https://api.openai.com/v1"
            detail = f"base_url {wrong} (not shown, as it may hold a key)"
            return Finding(about="address", weight=Weight.MEND, detail=detail, remedy=remedy)
        parts = urlsplit(self._url)
        if self._key is not None and parts.scheme == "http" and not _is_loopback(parts.hostname or ""):
            detail = f"{self._url}: the key goes there in the clear"
            return Finding(about="address", weight=Weight.NOTE, detail=detail, remedy="use https")
        return Finding(about="address", weight=Weight.OK, detail=self._url)

    def _own_key(self) -> Finding:
        state = self._key_state
        if state is None:
            return Finding(about="key", weight=Weight.OK, detail="the pool has none")
        if state.problem is None:
            return Finding(about="key", weight=Weight.OK, detail=f"found: {state.place}")
        return Finding(about="key", weight=Weight.MEND, detail=state.problem, remedy=state.remedy)

    # -- what came

    def _asked(self, question: Question, deadline_s: float) -> Answer | None:
        """The answer, whose headers are kept; None when there is none, which ends the check."""
        try:
            answer = ask(question, deadline_s=deadline_s)
        except NoAnswer as error:
            if error.cause in NEVER_SENT:
                self._cost_nano_usd = 0
            host = urlsplit(question.url).netloc
            remedy = "look at base_url in pools.yaml, at the network, and whether the provider is up"
            self._stop(Finding(about="connection", weight=Weight.AWAY, detail=f"{host}: {error}", remedy=remedy))
            return None
        if self._key is not None:
            answer = _without(answer, self._key)
        self._headers |= answer.headers
        return answer

    def _refused(self, answer: Answer) -> Finding:
        place = None if self._key_state is None else self._key_state.place
        return verdict.refused(answer, key_place=place, model=self._pool.model, now_ms=_now_ms())

    def _offer(self) -> wire.Offer | None:
        return next((offer for offer in self._offers or () if offer.model == self._pool.model), None)

    def _context(self, told: int) -> None:
        mine = self._pool.context_tokens
        if mine <= told:
            self._note("context", f"{mine:,} tokens; the provider allows {told:,}")
            return
        detail = f"{mine:,} tokens is more than the provider's {told:,}: longer prompts would be refused or cut"
        remedy = f"set context_tokens: {told}"
        self._findings.append(Finding(about="context", weight=Weight.NOTE, detail=detail, remedy=remedy))

    def _note(self, about: str, detail: str, remedy: str = "") -> None:
        weight = Weight.NOTE if remedy else Weight.OK
        self._findings.append(Finding(about=about, weight=weight, detail=detail, remedy=remedy))

    def _stop(self, finding: Finding) -> None:
        self._findings.append(finding)
        self._stopped = True


def _without(answer: Answer, key: str) -> Answer:
    """An answer that repeats the key, where a name is expected that is shown, names something else."""
    headers = {name: value.replace(key, "[key]") for name, value in answer.headers.items()}
    return replace(answer, headers=headers, body=answer.body.replace(key.encode(), b"[key]"))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

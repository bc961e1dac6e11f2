"""What a provider's answer says of a pool: the finding, how much it matters, and what to do (pure)."""

from dataclasses import dataclass
from enum import StrEnum

from nightmill.local.pools import wire
from nightmill.local.pools.call import Answer
from nightmill.provider_gateway.waits import retry_after_ms

_UNAUTHORISED, _PAYMENT, _FORBIDDEN, _MISSING, _NOT_ALLOWED = 401, 402, 403, 404, 405
_BAD_REQUEST, _UNPROCESSABLE, _TOO_MANY, _NOT_IMPLEMENTED = 400, 422, 429, 501
_MOVED, _REFUSED, _FAILED = 300, 400, 500
NOT_SERVED = frozenset({_MISSING, _NOT_ALLOWED, _NOT_IMPLEMENTED})

#: codes and types by which providers say that it is about money, whatever the status
_MONEY = frozenset(
    {
        "insufficient_quota",
        "credit_balance_exhausted",
        "organization_spend_limit_exceeded",
        "project_spend_limit_exceeded",
        "organization_usage_limit_exceeded",
        "billing_hard_limit_reached",
        "billing_error",
        "enforced_spend_limit_reached",
        "contract_spend_limit_reached",
    }
)


class Weight(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    NOTE = "note"  #: the pool works, and could do better
    MEND = "mend"  #: a setting is wrong: the pool can not work
    AWAY = "away"  #: the provider does not answer, or refuses for now


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of a check; `remedy` is empty when all is well."""

    about: str
    weight: Weight
    detail: str
    remedy: str = ""

    def line(self) -> str:
        """The finding as one line of text, as the doctor writes his."""
        mark = "problem" if self.weight in (Weight.MEND, Weight.AWAY) else self.weight.value
        return f"{mark:8}{self.about}: {self.detail}" + (f" → {self.remedy}" if self.remedy else "")


def refused(answer: Answer, *, key_place: str | None, model: str, now_ms: int) -> Finding:
    """The finding of an answer that is no success. `key_place`: where the key comes from, None without one."""
    said = wire.refusal(answer)
    facts = f"status {answer.status}" + (f", code {said.code}" if said.code is not None else "")
    if answer.status == _PAYMENT or said.code in _MONEY or said.of_money:
        remedy = "pay or raise the limit at the provider; jobs of this pool stay queued until then"
        return _away("account", f"it has no credit, or has reached its spend limit ({facts})", remedy)
    if answer.status == _UNAUTHORISED:
        return _key_refused(facts, key_place)
    if said.of_model and answer.status in (_FORBIDDEN, _MISSING, _BAD_REQUEST):
        return unknown_model(model, facts)
    if answer.status == _FORBIDDEN:
        whose = f"the key from {key_place}" if key_place is not None else "a caller without a key"
        return _mend("key", f"{whose} may not do this ({facts})", "look at the key's project, region and rights")
    return _by_status(answer, facts, now_ms)


def unknown_model(model: str, facts: str) -> Finding:
    remedy = "mend model in pools.yaml"
    return _mend("model", f"the provider does not serve {model} to this account ({facts})", remedy)


def web_page() -> Finding:
    detail = "a web page came instead of an answer"
    return _mend("address", detail, "mend base_url in pools.yaml; most end in /v1; or a proxy stands in between")


def not_understood(what: str) -> Finding:
    return _mend("address", f"what came is no {what}", "mend base_url or provider in pools.yaml")


def _by_status(answer: Answer, facts: str, now_ms: int) -> Finding:
    status = answer.status
    if status in NOT_SERVED:
        remedy = "mend base_url in pools.yaml; most end in /v1"
        return _mend("address", f"the server has no such call ({facts})", remedy)
    if status == _TOO_MANY:
        return _away("rate", f"the provider takes no call now{_come_back(answer, now_ms)} ({facts})", "try again later")
    if status >= _FAILED:
        return _away("provider", f"it fails, or is overloaded ({facts})", "try again later")
    if status >= _REFUSED:
        weight = Weight.MEND if status in (_BAD_REQUEST, _UNPROCESSABLE) else Weight.AWAY
        remedy = "look at provider and model in pools.yaml" if weight is Weight.MEND else "try again later"
        return Finding(about="call", weight=weight, detail=f"the provider refuses it ({facts})", remedy=remedy)
    if status >= _MOVED:
        where = wire.target(answer)
        to = "" if where is None else f" to {where}"
        return _mend("address", f"it redirects{to}, which is not followed ({facts})", "mend base_url in pools.yaml")
    return not_understood("answer of this kind")


def _key_refused(facts: str, key_place: str | None) -> Finding:
    if key_place is None:
        remedy = "name one in pools.yaml: key: {env: VARIABLE} or key: {file: PATH}"
        return _mend("key", f"the provider wants a key, and the pool has none ({facts})", remedy)
    remedy = "put a key there that is valid at this provider"
    return _mend("key", f"the provider refuses the key from {key_place} ({facts})", remedy)


def _come_back(answer: Answer, now_ms: int) -> str:
    wait_ms = retry_after_ms(answer.headers, now_ms=now_ms)
    return "" if wait_ms is None else f", again in {-(-wait_ms // 1000):,} s"


def _mend(about: str, detail: str, remedy: str) -> Finding:
    return Finding(about=about, weight=Weight.MEND, detail=detail, remedy=remedy)


def _away(about: str, detail: str, remedy: str) -> Finding:
    return Finding(about=about, weight=Weight.AWAY, detail=detail, remedy=remedy)

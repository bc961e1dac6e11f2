"""Whether a job has a pool whose address, key and server this installation knows (P6).

Such a pool's calls would wait for ever, and the job with them. It is asked by the gateway's own rule, with the
environment of the api: `nightmill up` gives both the same.
"""

from collections.abc import Mapping

from nightmill.api.errors import ApiError
from nightmill.api.requests import JobRequest
from nightmill.kernel.domain.addresses import flaw
from nightmill.kernel.domain.settings import Config, LocalServers, Pool
from nightmill.planner.estimate import usable_pools
from nightmill.provider_gateway.keys import KeyUnusable, read_key

_RESTART = "and start it again: nightmill down, then nightmill up"


def check_access(
    request: JobRequest, config: Config, environment: Mapping[str, str], local_servers: LocalServers
) -> None:
    """Raises `ApiError` when every pool that the job may use lacks its address, its key or its server."""
    problems = {
        name: _problem(pool, environment, local_servers)
        for name, pool in usable_pools(request.pipeline, request.tenant, config).items()
    }
    told = [(name, *problem) for name, problem in problems.items() if problem is not None]
    if told and len(told) == len(problems):
        message = "; ".join(f"pool {name}: {reason}" for name, reason, _ in told)
        remedy = ", or ".join(dict.fromkeys(remedy for *_, remedy in told))
        raise ApiError(422, "pool_unusable", f"no pool of the job can be used: {message}", f"{remedy}, {_RESTART}")


def _problem(pool: Pool, environment: Mapping[str, str], local_servers: LocalServers) -> tuple[str, str] | None:
    """What the pool lacks and the remedy, or None."""
    url = local_servers.base_url(pool)
    if url is None:
        if pool.embeddings is None:
            return "its local model server is not known here", "set NIGHTMILL_MODEL_URL"
        return "the local embeddings model does not run here", "make setup-model, or set NIGHTMILL_EMBEDDINGS_URL"
    wrong = flaw(url)
    if wrong is not None:
        return f"its base_url {wrong}", "mend base_url in pools.yaml"
    if pool.key is None:
        return None
    try:
        read_key(pool.key, environment)
    except KeyUnusable as error:
        reason = str(error).partition("; ")[0]
        if pool.key.env is not None:
            return reason, f"export {pool.key.env}"
        return reason, f"write the key to {pool.key.file} and chmod 600 it"
    return None

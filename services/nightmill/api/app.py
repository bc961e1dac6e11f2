"""The api as an ASGI application: routes, token, body cap, one form of errors."""

from importlib.metadata import version

from fastapi import Depends, FastAPI

from nightmill.api import data_routes, job_routes, webhook_routes
from nightmill.api.desk import Desk
from nightmill.api.errors import refusals, register
from nightmill.api.limits import BodyCap
from nightmill.api.token import check_token


def create_app(desk: Desk, token: str) -> FastAPI:
    """The application over `desk`; every path but /health, /openapi.json and those of webhooks asks for
    `token`."""
    # no interactive pages: they load scripts from elsewhere
    app = FastAPI(
        title="Nightmill",
        version=version("nightmill"),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=refusals("5XX"),
    )
    app.state.desk = desk
    app.state.token = token
    app.add_middleware(BodyCap, streamed=job_routes.INPUTS_PATH)
    register(app)
    guarded = [Depends(check_token)]
    for routes in (job_routes, data_routes):
        app.include_router(routes.router, dependencies=guarded, responses=refusals(401, 413))
    app.include_router(webhook_routes.router, responses=refusals(413))

    @app.get("/health", responses=refusals(413))
    async def alive() -> dict[str, bool]:
        """The api's process is alive."""
        return {"ok": True}

    return app

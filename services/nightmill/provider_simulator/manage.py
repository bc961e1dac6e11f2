"""Files, batches, webhooks, models and token counts: what each call does, and what becomes of batches afterwards."""

from __future__ import annotations

from collections.abc import Callable

from pydantic_core import to_json

from nightmill.provider_simulator import errors, faults
from nightmill.provider_simulator.anthropic import batches_api as anthropic_batches
from nightmill.provider_simulator.anthropic.read import read_body as read_message
from nightmill.provider_simulator.bulk.batch import Batch
from nightmill.provider_simulator.bulk.runner import Runner
from nightmill.provider_simulator.errors import ApiError
from nightmill.provider_simulator.faults import Occasion
from nightmill.provider_simulator.inbound import Inbound
from nightmill.provider_simulator.models import models_reply
from nightmill.provider_simulator.notifier import Notifier
from nightmill.provider_simulator.openai import batches_api, files_api, webhooks_api
from nightmill.provider_simulator.operations import Operation
from nightmill.provider_simulator.reply import Reply, Side, Voice
from nightmill.provider_simulator.routes import Route
from nightmill.provider_simulator.scenario import FAULT_HEADER, Story, parse_fault
from nightmill.provider_simulator.state import State

DEFAULT_MODEL = "simulated-model"

Do = Callable[[], Reply]


class Manager:
    """Carries out what is not a model's work. What a fault may prevent happens in the function that it returns."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._notifier = Notifier(state)
        self._runner = Runner(state, self._notifier.batch_ended)

    def start(self) -> None:
        """Go on with what a former process left; needs a running loop."""
        self._notifier.start()
        self._runner.resume()

    def reset(self) -> None:
        """Forget everything but the scenario."""
        self._runner.abort()
        self._notifier.clear()
        self._state.reset()

    async def stop(self) -> None:
        """Leave batches and notices as they are."""
        await self._runner.stop()
        await self._notifier.stop()

    async def prepared(self, inbound: Inbound, route: Route, occasion: Occasion, voice: Voice) -> Do:
        """Everything that has to be awaited, and then the deed itself as a function to be called once."""
        state = self._state
        match route.operation:
            case Operation.FILE_CREATE:
                record = await files_api.upload(state, inbound)
                if isinstance(record, ApiError):
                    return _refusing(voice, record)
                stories = self._stories(inbound, occasion)
                return lambda: files_api.stored(state, record, stories, voice)
            case Operation.WEBHOOKS if route.action == "test":
                reply = await self._notifier.test(inbound, route, voice)
                return lambda: reply
            case _:
                return lambda: self._done(inbound, route, occasion, voice)

    def _done(self, inbound: Inbound, route: Route, occasion: Occasion, voice: Voice) -> Reply:
        if route.operation is Operation.BATCH_CREATE:
            return self._batch_created(inbound, route, occasion, voice)
        if route.side is Side.ANTHROPIC:
            return self._anthropic(inbound, route, voice)
        return self._openai(inbound, route, voice)

    def _batch_created(self, inbound: Inbound, route: Route, occasion: Occasion, voice: Voice) -> Reply:
        state = self._state
        stories = self._stories(inbound, occasion)
        create = batches_api.created if route.side is Side.OPENAI else anthropic_batches.created
        batch = create(state, inbound, stories)
        if isinstance(batch, ApiError):
            return voice.refusal(batch)
        state.save_batch(batch)
        shown = self._shown(batch, inbound)
        self._runner.start(batch)
        return shown

    def _stories(self, inbound: Inbound, occasion: Occasion) -> list[Story]:
        """What the call's own header wants to happen, and what the scenario does."""
        found = faults.stories(self._state.run.scenario, occasion)
        text = inbound.headers.get(FAULT_HEADER)
        stated = None if text is None else parse_fault(text)  # it was read before, so it can be read
        return [stated, *found] if isinstance(stated, Story) else found

    def _shown(self, batch: Batch, inbound: Inbound) -> Reply:
        if batch.side is Side.OPENAI:
            return Reply(status=200, body=to_json(batches_api.as_json(batch, self._state.run.scenario.dialect)))
        return Reply(status=200, body=to_json(anthropic_batches.as_json(self._state, batch, inbound)))

    def _openai(self, inbound: Inbound, route: Route, voice: Voice) -> Reply:
        state, ident = self._state, route.ident
        match route.operation:
            case Operation.FILE_LIST:
                return files_api.listed(state, inbound, voice)
            case Operation.FILE_RETRIEVE:
                return files_api.retrieved(state, ident, voice)
            case Operation.FILE_CONTENT:
                return files_api.content(state, inbound, ident, voice)
            case Operation.FILE_DELETE:
                return files_api.deleted(state, ident, voice)
            case Operation.BATCH_LIST:
                return batches_api.listed(state, inbound, voice)
            case Operation.BATCH_RETRIEVE:
                return batches_api.retrieved(state, ident, voice)
            case Operation.BATCH_CANCEL:
                return batches_api.cancelled(state, ident, voice)
            case Operation.WEBHOOKS:
                return webhooks_api.handled(state, inbound, route, voice)
            case _:
                names = state.run.scenario.models or (DEFAULT_MODEL,)
                return models_reply(names, inbound, route, voice)

    def _anthropic(self, inbound: Inbound, route: Route, voice: Voice) -> Reply:
        state, ident = self._state, route.ident
        match route.operation:
            case Operation.BATCH_LIST:
                return anthropic_batches.listed(state, inbound, voice)
            case Operation.BATCH_RETRIEVE:
                return anthropic_batches.retrieved(state, inbound, ident, voice)
            case Operation.BATCH_CANCEL:
                return anthropic_batches.cancelled(state, inbound, ident, voice)
            case Operation.BATCH_DELETE:
                return anthropic_batches.deleted(state, ident, voice)
            case Operation.BATCH_RESULTS:
                return anthropic_batches.results(state, inbound, ident, voice)
            case Operation.COUNT_TOKENS:
                return self._counted(inbound, route, voice)
            case _:
                return voice.refusal(errors.unknown_url(inbound.method, inbound.path))

    def _counted(self, inbound: Inbound, route: Route, voice: Voice) -> Reply:
        data = inbound.json()
        if isinstance(data, ApiError):
            return voice.refusal(data)
        version = inbound.headers["anthropic-version"]
        ask = read_message(route.operation, data, self._state.run.scenario, version)
        if isinstance(ask, ApiError):
            return voice.refusal(ask)
        return Reply(status=200, body=to_json({"input_tokens": ask.prompt_tokens}))


def _refusing(voice: Voice, error: ApiError) -> Do:
    return lambda: voice.refusal(error)

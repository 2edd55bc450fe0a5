"""OpenAPI: an apispec plugin that describes the guards of an application.

Needs the extra `openapi`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from apispec import APISpec, BasePlugin
from flask import Flask

from .config.settings import Config, allowing_quotes
from .engine.engine import engine_of
from .engine.guard import ViewGuard
from .errors import PASSING, ConfigurationError
from .guards.key import KeyGuard
from .guards.lock import METHODS
from .guards.placement import placed_guards
from .guards.token import TokenGuard
from .guards.wrapping import covers, guards_of
from .request.key_header import LONGEST_VALUE, VALUE_PATTERN
from .response.headers import EXPIRES_HEADER, REFUSAL_HEADER, REPLAYED_HEADER
from .response.refusals import PROBLEM_TYPE, Refusal, StoreUnavailable

_Object = dict[str, Any]  # a specification has them in JSON

PROBLEM_SCHEMA = "IdempotenceProblem"
"""Name of the problem documents' schema among the components."""

_METHODS = frozenset(method.lower() for method in METHODS)

_PROBLEM = {
    "type": "object",
    "description": "A problem document (RFC 9457).",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
    },
}


class IdempotencePlugin(BasePlugin):
    """Adds the headers and error responses of guards to the operations of a specification.

    It reads each path that is given to `spec.path` with a `rule` (as flask-smorest does) or a
    `view`; existing descriptions are added to and never replaced. The extension must have been
    registered on the application before.

    Example:
        spec = APISpec("Shop", "1", "3.1.0", plugins=[IdempotencePlugin(app)])
        api = flask_smorest.Api(app, spec_kwargs={"extra_plugins": [IdempotencePlugin(app)]})

    Args:
        app: the application.
        error_content: the `content` of the error responses, where an error handler of the
            application makes them; None for the library's own problem documents.
    """

    def __init__(self, app: Flask, *, error_content: Mapping[str, Any] | None = None) -> None:
        self._app = app
        self._error_content = error_content
        self._spec: APISpec

    def init_spec(self, spec: APISpec) -> None:
        """Add the schema of the problem documents to a specification.

        Raises:
            ConfigurationError: it is one of OpenAPI 2.
        """
        if spec.openapi_version.major < 3:
            raise ConfigurationError("IdempotencePlugin describes OpenAPI 3, not 2.")
        self._spec = spec
        spec.components.schema(PROBLEM_SCHEMA, _PROBLEM, lazy=True)

    def operation_helper(
        self, path: str | None = None, operations: _Object | None = None, **kwargs: Any
    ) -> None:
        """Describe the guards of a view in its operations.

        Raises:
            ConfigurationError: the extension is not registered on the application.
        """
        del path
        engine = engine_of(self._app)
        config = engine.config
        rule = kwargs.get("rule")
        views = self._app.view_functions
        view = views.get(rule.endpoint) if rule else kwargs.get("view")
        if view is None or operations is None:
            return
        endpoint = next((name for name, each in views.items() if each is view), "")
        for method in _METHODS.intersection(operations):
            verb = method.upper()
            found = [each.guard for each in placed_guards(self._app, config, endpoint, verb)]
            found += [guard for guard in guards_of(view, verb) if covers(guard, verb)]
            if found:
                guards = [guard.bind(engine.services, None) for guard in found]
                self._describe(operations[method], guards, config)

    def _describe(self, operation: _Object, guards: Sequence[ViewGuard], config: Config) -> None:
        for guard in guards:
            _add_parameter(operation, guard, config)
        responses = operation.setdefault("responses", {})
        if any(guard.on_repeat == "replay" for guard in guards):
            for status, known in responses.items():
                if str(status)[0] in "23" and (response := self._inline(known)) is not None:
                    text = "Set if this is the remembered response to an earlier request."
                    _add_header(response, REPLAYED_HEADER, text, type="string", enum=["true"])
                    text = "Seconds for which this response is remembered."
                    _add_header(response, EXPIRES_HEADER, text, type="integer", minimum=0)
                    responses[status] = response
        by_status: dict[int, dict[type[Refusal], None]] = {}
        for guard in guards:
            found = [*guard.refuses_with]
            if (guard.on_store_error or config.on_store_error) == "reject":
                found.append(StoreUnavailable)
            for error in found:
                status = config.statuses.get(error.slug, error.code)
                by_status.setdefault(status, {})[error] = None
        for status, errors in sorted(by_status.items()):
            # A status of its own hides its range and the default: it begins as a copy of them.
            names = {str(known): known for known in responses}
            name = names.get(str(status), status)
            beginning = names.get(f"{status // 100}XX", names.get("default"))
            known = responses.get(name, responses.get(beginning, {}))
            if (response := self._inline(known)) is not None:
                responses[name] = self._with_errors(response, list(errors), config)

    def _inline(self, response: _Object | str) -> _Object | None:
        """Return a copy of a response to add to; None for a reference that is not known yet."""
        name = response.get("$ref") if isinstance(response, dict) else response
        if name is None:
            return deepcopy(response)  # type: ignore[return-value]  # it is a dict
        components = self._spec.components
        known = components.responses_lazy | components.responses
        return deepcopy(known.get(str(name).rpartition("/")[2]))

    def _with_errors(
        self, response: _Object, errors: list[type[Refusal]], config: Config
    ) -> _Object:
        texts = [f"{error.title} (`{error.slug}`)" for error in errors]
        response["description"] = "; ".join(filter(None, [response.get("description"), *texts]))
        slugs = [error.slug for error in errors]
        text = "Set if the guard has refused the request: the reason."
        _add_header(response, REFUSAL_HEADER, text, type="string", enum=slugs)
        if not (PASSING | {"repeat-submit"}).isdisjoint(slugs):
            text = "Seconds after which the request may be sent again."
            _add_header(response, "Retry-After", text, type="integer", minimum=1)
        own = self._error_content
        if own is None:
            types = {"type": {"enum": [config.problem_base + slug for slug in slugs]}}
            own = {PROBLEM_TYPE: {"schema": {"allOf": [PROBLEM_SCHEMA, {"properties": types}]}}}
        content = response.setdefault("content", {})
        for mimetype, media in deepcopy(dict(own)).items():
            content[mimetype] = self._either(content.get(mimetype), media)
        return response

    def _either(self, known: _Object | None, media: _Object) -> _Object:
        get_ref = self._spec.components.get_ref
        held = [get_ref("schema", of["schema"]) for of in (known, media) if of and "schema" in of]
        if known is None or len(held) < 2 or held[0] == held[1]:
            return known or media
        return {**known, "schema": {"anyOf": held}}


def _add_header(response: _Object, name: str, text: str, **schema: object) -> None:
    headers = response.setdefault("headers", {})
    headers.setdefault(name, {"description": text, "schema": schema})


def _add_parameter(operation: _Object, guard: ViewGuard, config: Config) -> None:
    """Describe the header of a guard, unless the operation describes it."""
    is_required, schema = False, _Object(type="string")
    key = guard.key if isinstance(guard, KeyGuard) else None
    if isinstance(guard, TokenGuard) or key == config.token_header:
        name = config.token_header
        purpose = guard.purpose if isinstance(guard, TokenGuard) else None
        issued = "" if purpose is None else f" issued for the purpose `{purpose}`"
        text = f"A token{issued}, unless the form field `{config.token_field}` holds it."
    elif isinstance(guard, KeyGuard) and isinstance(key, str):
        name, is_required, own = key, guard.required, guard.key_pattern
        text = (
            "A new key for every new operation, the same one for its repeats; bare, or as a "
            f"quoted string. Remembered for {guard.ttl:g} seconds."
        )
        pattern = VALUE_PATTERN if own is None else allowing_quotes(own)
        schema |= {"minLength": 1, "maxLength": LONGEST_VALUE, "pattern": pattern}
    else:
        return
    parameters = operation.setdefault("parameters", [])
    headers = [of for of in parameters if isinstance(of, dict) and of.get("in") == "header"]
    if all(of["name"].lower() != name.lower() for of in headers):
        parameter = {"name": name, "in": "header", "required": is_required}
        parameters.append({**parameter, "description": text, "schema": schema})

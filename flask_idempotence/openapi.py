"""OpenAPI: what guards add to the description of an application, as a plugin of apispec.

It needs the extra `openapi`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from apispec import APISpec, BasePlugin

from .engine.engine import engine_of
from .errors import ConfigurationError
from .guards.key import KeyGuard
from .guards.lock import LockGuard
from .guards.token import TokenGuard
from .guards.whole_app import speaks_for_itself
from .guards.wrapping import guards_of
from .request.key_header import LONGEST_VALUE, VALUE_PATTERN
from .response.outcome import REFUSAL_HEADER, REPLAYED_HEADER
from .response.refusals import (
    PROBLEM_TYPE,
    KeyInProgress,
    KeyInvalid,
    KeyMissing,
    KeyRepeated,
    KeyReused,
    LeaseLost,
    OutcomeUnknown,
    Refusal,
    RepeatSubmit,
    ResponseNotStored,
    StoreUnavailable,
    TokenExpired,
    TokenInvalid,
    TokenMissing,
    TokenNotYours,
    TokenSpent,
)

if TYPE_CHECKING:
    from flask import Flask

    from .config.settings import Config
    from .engine.guard import ViewGuard

PROBLEM_SCHEMA = "IdempotenceProblem"
"""The name of the schema of the problem documents, among the components."""

_METHODS = frozenset({"get", "put", "post", "delete", "options", "head", "patch", "trace"})

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
_REPLAYED = {
    "description": "Present where this is the remembered response to the first such request.",
    "schema": {"type": "string", "enum": ["true"]},
}
_RETRY_AFTER = {
    "description": "Seconds after which the request may be sent again.",
    "schema": {"type": "integer", "minimum": 1},
}
_TO_BE_RETRIED = (RepeatSubmit, KeyInProgress, LeaseLost, StoreUnavailable)


class IdempotencePlugin(BasePlugin):
    """Adds headers and error responses of the guards to the operations of a specification.

    It looks at each path that is given to `spec.path` with a `rule` (as flask-smorest does) or a
    `view`; what stands there already is added to and never replaced. The extension must have been
    registered on the application before.

    Example:
        spec = APISpec("Shop", "1", "3.1.0", plugins=[IdempotencePlugin(app)])
        api = flask_smorest.Api(app, spec_kwargs={"extra_plugins": [IdempotencePlugin(app)]})

    Args:
        app: the application.
        error_content: the `content` of the error responses, where an error handler of the
            application makes them; None for the problem documents that come without one.
    """

    def __init__(self, app: Flask, *, error_content: Mapping[str, Any] | None = None) -> None:
        self._app = app
        self._error_content = error_content
        self._spec: APISpec

    def init_spec(self, spec: APISpec) -> None:
        """Take part in a specification.

        Raises:
            ConfigurationError: it is one of OpenAPI 2.
        """
        if spec.openapi_version.major < 3:
            raise ConfigurationError("IdempotencePlugin describes OpenAPI 3, not 2.")
        self._spec = spec
        spec.components.schema(PROBLEM_SCHEMA, _PROBLEM, lazy=True)

    def operation_helper(
        self,
        path: str | None = None,
        operations: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Describe what the guards of a view add to its operations.

        Raises:
            ConfigurationError: the extension is not registered on the application.
        """
        del path
        config = engine_of(self._app).config
        rule, view = kwargs.get("rule"), kwargs.get("view")
        if rule is not None:
            view = self._app.view_functions.get(rule.endpoint)
        if view is None or operations is None:
            return
        for method in _METHODS.intersection(operations):
            if guards := list(_guards_around(view, method.upper(), config)):
                self._describe(operations[method], guards, config)

    def _describe(
        self, operation: dict[str, Any], guards: list[ViewGuard], config: Config
    ) -> None:
        for guard in guards:
            if (parameter := _parameter_of(guard, config)) is not None:
                _add_parameter(operation, parameter)
        responses = operation.setdefault("responses", {})
        if any(_replays(guard, config) for guard in guards):
            for status in responses:
                if str(status)[0] in "23":
                    responses[status] = self._with_header(responses[status])
        errors = dict.fromkeys(error for guard in guards for error in _errors_of(guard, config))
        by_status: dict[int, list[type[Refusal]]] = {}
        for error in errors:
            by_status.setdefault(_status_of(error, config), []).append(error)
        for code, group in sorted(by_status.items()):
            name, known = _described(responses, code)
            merged = self._with_errors(known, group, config)
            if name in responses or merged is not known:
                responses[name] = merged

    def _with_header(self, known: Any) -> Any:
        response = self._inline(known)
        if response is None:
            return known
        response.setdefault("headers", {}).setdefault(REPLAYED_HEADER, deepcopy(_REPLAYED))
        return response

    def _with_errors(self, known: Any, errors: list[type[Refusal]], config: Config) -> Any:
        response = self._inline(known)
        if response is None:
            return known
        told = [f"{error.title} (`{error.slug}`)" for error in errors]
        response["description"] = "; ".join(filter(None, [response.get("description"), *told]))
        headers = response.setdefault("headers", {})
        headers.setdefault(REFUSAL_HEADER, _refusal_header(errors))
        if not set(errors).isdisjoint(_TO_BE_RETRIED):
            headers.setdefault("Retry-After", deepcopy(_RETRY_AFTER))
        content = response.setdefault("content", {})
        for mimetype, media in self._content_of(errors, config).items():
            content[mimetype] = self._either(content.get(mimetype), media)
        return response

    def _content_of(self, errors: Iterable[type[Refusal]], config: Config) -> dict[str, Any]:
        if self._error_content is not None:
            return deepcopy(dict(self._error_content))
        types = [config.problem_base + error.slug for error in errors]
        one_of = {"properties": {"type": {"enum": types}}}
        return {PROBLEM_TYPE: {"schema": {"allOf": [PROBLEM_SCHEMA, one_of]}}}

    def _inline(self, response: Any) -> dict[str, Any] | None:
        """Return a copy of a response to add to, or None where it is one that is not known yet."""
        name = response.get("$ref") if isinstance(response, dict) else response
        if name is None:
            return deepcopy(response)  # type: ignore[no-any-return]  # of a description
        components = self._spec.components
        for known in (components.responses, components.responses_lazy):
            if (found := known.get(str(name).rpartition("/")[2])) is not None:
                return deepcopy(found)
        return None

    def _either(self, known: dict[str, Any] | None, media: dict[str, Any]) -> dict[str, Any]:
        """Combine what a media type holds already with what it may hold too."""
        get_ref = self._spec.components.get_ref
        held = [get_ref("schema", of["schema"]) for of in (known, media) if of and "schema" in of]
        if known is None or len(held) < 2 or held[0] == held[1]:
            return known or media
        return {**known, "schema": {"anyOf": held}}


def _described(responses: Mapping[Any, Any], code: int) -> tuple[Any, Any]:
    """Return the name and the description of the responses with a status.

    A description of the status by itself hides those of its range (`4XX`) and of the default: what
    is added to one of these stands beside a copy of it.
    """
    for name in (str(code), f"{code // 100}XX", "default"):
        for known in responses:
            if str(known) == name:
                return (known if name == str(code) else code), responses[known]
    return code, {}


def _refusal_header(errors: Iterable[type[Refusal]]) -> dict[str, Any]:
    return {
        "description": "Present where the guard has refused the request: says why.",
        "schema": {"type": "string", "enum": [error.slug for error in errors]},
    }


def _guards_around(view: Any, method: str, config: Config) -> Iterator[ViewGuard]:
    # Whole-app mode puts its guards around the views at the first request, which may be later.
    to_come = config.key_all_routes and method in config.key_methods
    if to_come and not speaks_for_itself(view, method):
        yield KeyGuard(guarded_methods=frozenset({method}))
    yield from (guard for guard in guards_of(view, method) if guard.covers(method))


def _parameter_of(guard: ViewGuard, config: Config) -> dict[str, Any] | None:
    if isinstance(guard, TokenGuard):
        return _token_parameter(config, guard.purpose)
    if not isinstance(guard, KeyGuard) or callable(guard.key):
        return None
    if guard.key == config.token_header:
        return _token_parameter(config, None)
    ttl = config.key_ttl if guard.ttl is None else guard.ttl
    return {
        "name": guard.key or config.key_header,
        "in": "header",
        "required": _is_required(guard, config),
        "description": (
            "A new key for every new operation, the same one for its repeats; bare, or as a "
            f"quoted string. Remembered for {ttl:g} seconds."
        ),
        "schema": {
            "type": "string",
            "minLength": 1,
            "maxLength": LONGEST_VALUE,
            "pattern": VALUE_PATTERN,
        },
    }


def _token_parameter(config: Config, purpose: str | None) -> dict[str, Any]:
    issued = "" if purpose is None else f" issued for the purpose `{purpose}`"
    return {
        "name": config.token_header,
        "in": "header",
        "required": False,
        "description": f"A token{issued}, unless the form field `{config.token_field}` holds it.",
        "schema": {"type": "string"},
    }


def _add_parameter(operation: dict[str, Any], parameter: dict[str, Any]) -> None:
    parameters = operation.setdefault("parameters", [])
    names = [
        known["name"].lower()
        for known in parameters
        if isinstance(known, dict) and known.get("in") == "header"
    ]
    if parameter["name"].lower() not in names:
        parameters.append(parameter)


def _errors_of(guard: ViewGuard, config: Config) -> Iterator[type[Refusal]]:
    if isinstance(guard, KeyGuard):
        yield from _key_errors(guard, config)
    elif isinstance(guard, TokenGuard):
        yield from (TokenMissing, TokenInvalid, TokenExpired, TokenNotYours, TokenSpent)
    elif isinstance(guard, LockGuard):
        yield from (RepeatSubmit, LeaseLost)
    if config.on_store_error == "reject":
        yield StoreUnavailable


def _key_errors(guard: KeyGuard, config: Config) -> Iterator[type[Refusal]]:
    if _is_required(guard, config):
        yield KeyMissing
    if guard.key == config.token_header:
        yield from (TokenInvalid, TokenExpired)
    else:
        yield KeyInvalid
    yield from (KeyReused, KeyInProgress)
    yield ResponseNotStored if _replays(guard, config) else KeyRepeated
    if (guard.guarantee or config.key_guarantee) == "at-most-once":
        yield OutcomeUnknown
    yield LeaseLost


def _is_required(guard: KeyGuard, config: Config) -> bool:
    return config.key_required if guard.required is None else guard.required


def _replays(guard: ViewGuard, config: Config) -> bool:
    return isinstance(guard, KeyGuard) and ((guard.on_repeat or config.key_on_repeat) == "replay")


def _status_of(error: type[Refusal], config: Config) -> int:
    return config.duplicate_status if error.is_duplicate else error.code or 500

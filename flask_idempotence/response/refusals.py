"""Refusals: errors that answer a request, each with a problem document (RFC 9457).

Some frameworks answer HTTP errors in their own ways: Flask-RESTful, Flask-RESTX and flask-smorest
look for a payload in the error's `data`; APIFlask passes status and name on, and needs a handler.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import chain
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, ClassVar, Self

from flask import (
    Flask,
    Request,
    Response,
    after_this_request,
    current_app,
    has_request_context,
    request,
)
from markupsafe import escape
from werkzeug.exceptions import HTTPException

from ..config.settings import Config
from ..errors import PASSING, IdempotenceError
from .headers import REFUSAL_HEADER, response_state

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

_logger = logging.getLogger("flask_idempotence")

PROBLEM_TYPE = "application/problem+json"  # RFC 9457

_STYLE = (
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>body {'
    "font: 1.1em/1.5 system-ui; margin: 3em auto; max-width: 36em; padding: 0 1em}</style>"
)

# Werkzeug takes the square of its length for an `Accept` of blanks; browsers send some 150.
_LONGEST_ACCEPT = 1024


class Refusal(IdempotenceError, HTTPException):
    """A request that the library answers itself, as a problem document (RFC 9457).

    A client that prefers HTML gets the framework's ordinary error page instead.

    Attributes:
        code: the status.
        slug: the last part of the problem's `type`.
        title: the fixed summary of the problem type.
        description: the text of the page, for a client that prefers HTML, else the problem's
            `detail`.
        retry_after: whole seconds for the `Retry-After` header, or None for no such header.
        problem_base: the first part of the problem's `type`.
    """

    code: int
    slug: ClassVar[str]
    title: ClassVar[str]
    description: str
    # A text for people, on the pages of clients that prefer HTML, where `description` is for
    # programs. `IDEMPOTENCE_MESSAGES` replaces both.
    page: ClassVar[str] = ""
    problem_base: str = "urn:flask-idempotence:"
    retry_after: int | None
    is_worded: bool = False  # by the route: `IDEMPOTENCE_MESSAGES` does not replace the text
    reason: str = ""  # for the log in debug mode; never sent

    def __init_subclass__(cls, *, problem: tuple[int, str, str] | None = None) -> None:
        """Take status, slug and title of a problem type."""
        if problem is not None:
            cls.code, cls.slug, cls.title = problem

    def __init__(self, description: object = None, *, retry_after: float | None = None) -> None:
        """Prepare the answer.

        Args:
            description: replaces the class's own; anything with a `str()`. Where that fails, the
                class's own is sent, and the log says why.
            retry_after: seconds, rounded up to whole ones, at least 1. None: 1 for a refusal after
                which another attempt may fare better, else no `Retry-After`.
        """
        HTTPException.__init__(self, self._made(description))
        if retry_after is None and getattr(self, "slug", "") in PASSING:  # a base has none
            retry_after = 1
        self.retry_after = None if retry_after is None else max(1, math.ceil(retry_after))

    def because(self, reason: str) -> Self:
        """Note the cause, for the log in debug mode."""
        self.reason = reason
        return self

    @property
    def type(self) -> str:
        """The problem's type, a URI."""
        return self.problem_base + self.slug

    @property
    def problem(self) -> dict[str, object]:
        """The problem document (RFC 9457)."""
        named = {"type": self.type, "title": self.title}
        return {**named, "status": self.code, "detail": self.description}

    @property
    def name(self) -> str:
        """The name of the status; the title, under a status that is no error."""
        return super().name if self.code >= 400 else self.title

    @property
    def data(self) -> dict[str, object]:
        """The payload that some frameworks look for in an error; absent elsewhere."""
        problem = self.problem
        message = {"message": problem.pop("detail")}
        for api in _apis_of(current_app) if request else ():
            if api.owns_endpoint(request.endpoint or ""):
                # The payload would replace the answer of a handler of Flask-RESTX's.
                scopes = (api, *getattr(api, "namespaces", ()))
                handled = (getattr(scope, "error_handlers", ()) for scope in scopes)
                if isinstance(self, tuple(chain.from_iterable(handled))):
                    raise AttributeError("data")
                return message | problem
        if request and "flask-smorest" in current_app.extensions:
            return message | {"errors": {"idempotence": [self.slug]}}
        raise AttributeError("data")

    def apply(self, config: Config) -> None:
        """Apply the settings, and keep the headers on a response that a hook replaces."""
        self.problem_base = config.problem_base
        self.code = config.statuses.get(self.slug, self.code)
        if not self.is_worded:
            text = self._made(config.messages.get(self.slug))
            if text is None and has_request_context() and _prefers_html(request.environ):
                text = self.page
            self.description = text or self.description
        if has_request_context():
            response_state(request).refusals.append(self)
            after_this_request(self.add_headers)

    def _made(self, text: object) -> str | None:
        """Return the text of a lazy one, never markup; None where it cannot be made or sent."""
        if text is None:
            return None
        try:
            made = "".join([str(text)])  # exactly a str: a page would not escape markup
            made.encode()
        except Exception:  # the refusal is still right
            _logger.exception(
                "Flask-Idempotence: the text for %r, from IDEMPOTENCE_MESSAGES or the guard, "
                "cannot be rendered; another one is sent.",
                self.slug,
            )
            return None
        return made

    def add_headers(self, response: Response) -> Response:
        """Add the headers of this refusal to a response that an error handler made of it.

        A view that catches the refusal answers for itself: with a status of its own, its response
        is none of the refusal.
        """
        answered = [each for each in response_state(request).refusals if _is_caught_by_flask(each)]
        if self in answered or (not answered and response.status_code == self.code >= 400):
            self.mark(response)
        return response

    def mark(self, response: Response) -> Response:
        """Put the headers of this refusal on a response, also if a hook replaces it."""
        headers = self._lasting_headers()
        if response.status_code != self.code:
            headers.pop("Retry-After", None)
        elif "Retry-After" in response.headers:  # the handler's own
            headers["Retry-After"] = response.headers["Retry-After"]
        if response.headers.get(REFUSAL_HEADER) != self.slug:  # it is not its own rendering
            response.headers.update(headers)
        response_state(request).headers.update(headers)
        return response

    def _page_of(self, name: str, environ: WSGIEnvironment | None) -> str:
        """Return the page; a text of the application's is in a language that only it knows."""
        is_ours = self.description in (type(self).description, self.page)
        return (
            f"<!doctype html>\n<html{' lang=en' if is_ours else ''}>\n{_STYLE}\n"
            f"<title>{self.code} {name}</title>\n<h1 lang=en>{name}</h1>\n"
            f"{self.get_description(environ)}\n"
        )

    def get_headers(
        self, environ: WSGIEnvironment | None = None, scope: dict[str, object] | None = None
    ) -> list[tuple[str, str]]:
        """Return the headers of the answer."""
        if _prefers_html(environ):
            headers = super().get_headers(environ, scope)
        else:
            headers = [("Content-Type", PROBLEM_TYPE)]
        return [*headers, ("Vary", "Accept"), *self._lasting_headers().items()]

    def _lasting_headers(self) -> dict[str, str]:
        """Return the headers that do not depend on the body."""
        headers = {REFUSAL_HEADER: self.slug}
        if self.retry_after is not None:
            headers["Retry-After"] = str(self.retry_after)
        return headers

    def get_body(
        self,
        environ: WSGIEnvironment | None = None,
        scope: dict[str, object] | None = None,  # noqa: ARG002 - Werkzeug's own has it
    ) -> str:
        """Return the body of the answer: a problem document, or an HTML page."""
        if _prefers_html(environ):
            return self._page_of(escape(self.name), environ)
        problem = self.problem
        try:  # as the application writes JSON, its keys in the order of RFC 9457
            text = current_app.json.dumps(problem, sort_keys=False)
            text.encode()
        except Exception:  # noqa: BLE001 - no application, or a JSON provider that returns no text
            return json.dumps(problem)
        return text


def _is_caught_by_flask(error: Exception) -> bool:
    # The outermost frame of a traceback is the one that caught the exception.
    names = (frame.f_globals.get("__name__") for frame, _ in walk_tb(error.__traceback__))
    return "flask.app" in names


def _prefers_html(environ: WSGIEnvironment | None) -> bool:
    sent = (environ or {}).get("HTTP_ACCEPT", "")
    return len(sent) <= _LONGEST_ACCEPT and _html_is_preferred(sent)


@lru_cache(maxsize=128)  # parsing takes longer than all the rest of a refusal
def _html_is_preferred(sent: str) -> bool:
    accept = Request({"HTTP_ACCEPT": sent}).accept_mimetypes
    return accept["text/html"] > max(accept["application/json"], accept[PROBLEM_TYPE])


def _apis_of(app: Flask) -> Iterator[Any]:
    # Each wraps its own router of errors around the previous one.
    handle: Any = app.handle_user_exception
    while isinstance(handle, partial):
        api = getattr(handle.func, "__self__", None)
        if hasattr(api, "owns_endpoint"):
            yield api
        handle = handle.args[0] if handle.args else None


def register_with_apiflask(app: Flask) -> None:
    """Have APIFlask show a refusal's text and type, by the application's `error_processor`.

    Where the application has a handler of its own for all HTTP errors, that stays the one.
    """
    handlers = app.error_handler_spec[None][None]
    general = handlers.get(HTTPException)
    is_own = getattr(general, "__module__", "").partition(".")[0] == "apiflask"
    if is_own and handlers.keys().isdisjoint((Refusal, IdempotenceError)):
        handlers[Refusal] = _answer_as_apiflask


def _answer_as_apiflask(refusal: Any) -> Any:
    from apiflask import HTTPError  # noqa: PLC0415 - in use by the application

    headers = dict(refusal.get_headers())
    del headers["Content-Type"]
    detail = refusal.problem
    error = HTTPError(409, detail.pop("detail"), detail, headers)
    error.status_code = refusal.code  # it takes those of errors only
    app: Any = current_app
    return app.error_callback(error)


_AGAIN = "Please go back, reload the page and try again."


class RepeatSubmit(Refusal, problem=(409, "repeat-submit", "Repeated submit")):
    """The same submit again within the interval, or while the first one runs."""

    description = "This has just been submitted. Please do not submit it twice."


class TokenError(Refusal):
    """Base of the errors of one-time tokens."""


class TokenMissing(TokenError, problem=(400, "token-missing", "Token missing")):
    """The request carries no token."""

    description = "This request needs a one-time token. Load the page again, or fetch a token."
    page = f"This form could not be sent. {_AGAIN}"


class TokenInvalid(TokenError, problem=(400, "token-invalid", "Token invalid")):
    """The token is malformed, forged, or was issued for another purpose."""

    description = "The one-time token is not valid here. Load the page again, or fetch a token."
    page = f"This form is not valid any more. {_AGAIN}"


class TokenExpired(TokenError, problem=(400, "token-expired", "Token expired")):
    """The token is older than its lifetime."""

    description = "The one-time token has expired. Load the page again, or fetch a token."
    page = f"This page was open for too long. {_AGAIN}"


class TokenNotYours(TokenError, problem=(403, "token-not-yours", "Token of another user")):
    """The token was issued to another user; it stays unspent."""

    description = "The one-time token belongs to another user. Load the page again."
    page = f"This page was opened by another user. {_AGAIN}"


class TokenSpent(TokenError, problem=(409, "token-spent", "Token already spent")):
    """The token has been spent, or is no longer known."""

    description = "This has already been submitted. To submit again, load the page again."
    page = "This has already been sent. To send it again, go back and reload the page."


class KeyMissing(Refusal, problem=(400, "key-missing", "Key missing")):
    """The request carries no idempotency key where one is required."""

    description = "This request needs an idempotency key: a new one for every new operation."
    page = f"This form could not be sent. {_AGAIN}"


class KeyInvalid(Refusal, problem=(400, "key-invalid", "Key invalid")):
    """The idempotency key is empty, too long, not printable ASCII, or there are several."""

    description = (
        "The idempotency key must be one value of 1 to 255 printable ASCII characters, bare or "
        "as a quoted string."
    )
    page = f"This form could not be sent. {_AGAIN}"


class KeyReused(Refusal, problem=(422, "key-reused", "Key reused")):
    """The idempotency key was sent before with another request."""

    description = (
        "This idempotency key has been used for another request. Send the first request again "
        "unchanged, or use a new key."
    )
    page = (
        "This form has been sent before, with other input. To send it again, go back and reload "
        "the page."
    )


class KeyInProgress(Refusal, problem=(409, "key-in-progress", "Request in progress")):
    """The first request with this idempotency key is still running."""

    description = "The first request with this idempotency key is still running. Try again soon."
    page = "This is still being processed. Please try again in a moment."


class Running(KeyInProgress):
    """Another run of the same `once` operation is in progress; also usable as a response.

    After `remaining` seconds its lease ends, unless renewed: if the run has died, the operation
    is free then.
    """

    title = "Operation in progress"
    description = "This operation is being carried out already. Try again soon."

    def __init__(self, description: object = None, *, remaining: float = 0.0) -> None:
        super().__init__(description)
        self.remaining = remaining


class KeyRepeated(Refusal, problem=(409, "key-repeated", "Key repeated")):
    """The request with this idempotency key is done, and the route rejects repeats."""

    description = "The request with this idempotency key has been carried out before."
    page = "This has already been done."


class OutcomeUnknown(Refusal, problem=(409, "outcome-unknown", "Outcome unknown")):
    """The first request was interrupted: in a view at-most-once, or in its streamed response."""

    description = (
        "The first request with this idempotency key was interrupted, and whether it took effect "
        "is unknown. Look it up before you send it with a new key."
    )
    page = (
        "This was interrupted, and we do not know whether it took effect. Please check before "
        "you send it again."
    )


class ResponseNotStored(Refusal, problem=(409, "response-not-stored", "Response not stored")):
    """The first request is done, but its response cannot be replayed."""

    description = (
        "The request with this idempotency key has been carried out, but its response was not "
        "kept. Look its result up."
    )
    page = "This has already been done, but its result cannot be shown again. Please look it up."


class LeaseLost(Refusal, problem=(409, "lease-lost", "Lease lost")):
    """The claim was lost while the view ran, and the view checked it."""

    description = "The operation took too long and was stopped. Please try again."


class StoreUnavailable(Refusal, problem=(503, "store-unavailable", "Store unavailable")):
    """The store does not answer, and the policy is to reject requests."""

    description = "The request cannot be protected against repetition right now. Try again soon."
    page = "We cannot process this right now. Please try again soon."

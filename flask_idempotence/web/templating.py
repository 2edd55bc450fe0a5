"""Template functions: the hidden field with a token, the script and its settings."""

from __future__ import annotations

import json

from flask import current_app, has_request_context, request
from markupsafe import Markup

from ..config.settings import Config
from ..engine.engine import engine_of
from ..engine.tokens import issue_token
from ..errors import ConfigurationError
from ..request.proxies import actual
from ..request.tokens import check_purpose
from ..response.headers import forbid_storing, response_state
from ..response.refusals import StoreUnavailable
from .routes import SCRIPT, SCRIPT_ENDPOINT, TOKEN_ENDPOINT, url_on_this_host, version_of


def idempotence_token(purpose: str | None = None) -> str:
    """Issue a token for the page, which is then sent with `Cache-Control: no-store`.

    From a cache, the page would come with a spent token, or with another visitor's.

    In the page of an error handler, after a refusal, the token is empty if the store does not
    answer: another refusal would end in a 500.

    Args:
        purpose: the argument of the view's `one_time_token(purpose=...)`, if it has one.

    Raises:
        ValueError: the purpose is not of letters, digits, `_`, `.` and `-`, 64 at most.
        StoreUnavailable: the store does not answer, and the policy is to reject.
        RuntimeError: the page is being streamed, and its headers were sent without `no-store`.
    """
    app = actual(current_app)
    page = actual(request) if has_request_context() else None
    engine = engine_of(app)
    if page is not None and not engine.observes(app):
        forbid_storing(page)
    was_refused = page is not None and bool(response_state(page).refusals)
    try:
        return issue_token(engine, page, purpose)
    except StoreUnavailable:
        if not was_refused:
            raise
        return ""


def idempotence_field(purpose: str | None = None, *, empty: bool = False) -> Markup:
    """Return a hidden input with a new token; it protects a form without any script.

    Args:
        purpose: as for `idempotence_token`.
        empty: leave the token out: the store is not asked, the page may be cached, and the script
            (`idempotence_script`, on a form with `data-idempotence`) fetches a token when the
            form is sent.

    Raises:
        ValueError, StoreUnavailable, RuntimeError: as for `idempotence_token`.
        ConfigurationError: an empty field, where `IDEMPOTENCE_TOKEN_URL` is None.
    """
    config = _config()
    if empty and config.token_url is None:
        raise ConfigurationError(
            "idempotence_field(empty=True): the script fetches the token from "
            "IDEMPOTENCE_TOKEN_URL, which is None. Set it to a path."
        )
    if empty:
        check_purpose(purpose)
    token = "" if empty else idempotence_token(purpose)
    # A browser must not restore a spent one when it returns to a page.
    start = Markup('<input type="hidden" name="{}" value="{}" autocomplete="off"')
    field = start.format(config.token_field, token)
    if token:
        field += Markup(' data-idempotence-expires-in="{}"').format(int(config.token_ttl))
    if purpose is not None:
        field += Markup(' data-idempotence-purpose="{}"').format(purpose)
    return field + Markup(">")


def idempotence_meta() -> Markup:
    """Return a meta element with the token URL and the names of headers, for scripts.

    Its content is JSON: `tokenUrl` (null where there is no such route), `tokenHeader`,
    `tokenField` and `keyHeader`. The script works without it where all of these are the defaults.
    """
    config = _config()
    content = {
        "tokenUrl": None if config.token_url is None else url_on_this_host(TOKEN_ENDPOINT),
        "tokenHeader": config.token_header,
        "tokenField": config.token_field,
        "keyHeader": config.key_header,
    }
    return Markup('<meta name="idempotence" content="{}">').format(json.dumps(content))


def idempotence_script(*, nonce: str | None = None) -> Markup:
    """Return the script element that loads `idempotence.js`, deferred.

    Args:
        nonce: the page's nonce, where its content security policy needs one.
    """
    url = url_on_this_host(SCRIPT_ENDPOINT, filename=SCRIPT, v=version_of(SCRIPT))
    with_nonce = "" if nonce is None else Markup(' nonce="{}"').format(nonce)
    return Markup('<script src="{}" defer{}></script>').format(url, with_nonce)


FUNCTIONS = {
    function.__name__: function
    for function in (idempotence_field, idempotence_meta, idempotence_script, idempotence_token)
}
"""The functions of all templates, by name."""


def _config() -> Config:
    return engine_of(actual(current_app)).config

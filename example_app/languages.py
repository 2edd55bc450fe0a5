"""The pages in Chinese, for a browser that prefers it."""

from __future__ import annotations

import json
from pathlib import Path

from flask import Flask, Response, g, request

TEXTS: dict[str, str] = json.loads(
    Path(__file__).with_name("chinese.json").read_text(encoding="utf-8")
)
"""English and Chinese."""


def register(app: Flask) -> None:
    """Translate the templates of an application by the language of the browser."""
    app.jinja_env.add_extension("jinja2.ext.i18n")
    app.jinja_env.policies["ext.i18n.trimmed"] = True
    app.jinja_env.install_gettext_callables(  # type: ignore[attr-defined]
        gettext, lambda one, many, count: one if count == 1 else many, newstyle=True
    )
    app.context_processor(lambda: {"language": language()})
    app.after_request(vary)


def language() -> str:
    """Return the language of the page; English is the default."""
    g.varies = True
    return request.accept_languages.best_match(("en", "zh"), default="en") or "en"


def gettext(text: str) -> str:
    """Return a text in the language of the page."""
    return TEXTS.get(text, text) if language() == "zh" else text


def vary(response: Response) -> Response:
    """Let caches distinguish the languages of a page."""
    if g.get("varies"):
        response.vary.add("Accept-Language")
    return response


class Lazy:
    """A text that is translated in the request that shows it, such as a guard's message."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return gettext(self._text)

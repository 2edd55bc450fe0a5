"""IDEMPOTENCE_MESSAGES: the texts of refusals, in documents, on pages and in every language."""

import json
import re

import pytest
from flask import abort, request
from flask.json.provider import DefaultJSONProvider
from flask_babel.speaklater import LazyString
from helpers.apps import make_app
from helpers.once_operations import elsewhere
from helpers.refusal_cases import refused_as_documented
from helpers.repository import REFERENCE, REFUSALS, text_of
from markupsafe import Markup

from flask_idempotence import (
    Idempotence,
    RepeatSubmit,
    Running,
    TokenError,
    TokenMissing,
    no_repeat_submit,
    one_time_token,
)

TEXT = "请勿重复提交 <b>100%s</b> {x} & %(y)s"


class Lazy:
    """A text that is made when it is needed."""

    def __init__(self, make):
        self.make = make

    def __str__(self):
        return self.make()


def locked_app(message=None, **settings):
    app = make_app(**settings)
    view = no_repeat_submit(60, message)(lambda: "done")
    app.add_url_rule("/orders", "order", view, methods=["POST"])
    return app


def refused(app, **headers):
    """Return the answer to the second of two equal submits."""
    app.test_client().post("/orders")
    return app.test_client().post("/orders", headers=headers)


def body_of(*arguments, **options):
    return refused_as_documented(*arguments, **options).partition("\n\n")[2]


BUT_THE_LOCK = [slug for slug in REFUSALS if slug != "repeat-submit"]


@pytest.mark.parametrize("slug", BUT_THE_LOCK)
def test_every_refusal_and_its_page_have_the_text_of_the_setting(slug):
    texts = {"IDEMPOTENCE_MESSAGES": {slug: TEXT}}
    document = json.loads(body_of(slug, accept="application/json", **texts))
    assert (document["detail"], document["title"]) == (TEXT, REFUSALS[slug].title)
    escaped = TEXT.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert f"<p>{escaped}</p>" in body_of(slug, accept="text/html", **texts)


FOR_PROGRAMMERS = re.compile(r"(?i)\btokens?\b|\bkeys?\b|header|\bfetch|\brequest|response")


@pytest.mark.parametrize("slug", BUT_THE_LOCK)
def test_the_page_of_every_refusal_speaks_to_people(slug):
    [text] = re.findall(r"<p>(.*)</p>", body_of(slug, accept="text/html"))
    shown = re.search(rf"(?m)^\| `{slug}` \| (.*) \|$", text_of(REFERENCE / "errors.md"))
    assert text == shown[1]
    assert not FOR_PROGRAMMERS.search(text)
    assert json.loads(body_of(slug))["detail"] != REFUSALS[slug].page


@pytest.mark.parametrize(("text", "language"), [(None, " lang=en"), ("请勿重复提交", "")])
def test_a_page_without_a_stylesheet_is_legible_and_in_the_language_of_its_text(text, language):
    page = refused(locked_app(text), Accept="text/html").text
    assert f"<html{language}>" in page
    assert "<h1 lang=en>Conflict</h1>" in page
    assert '<meta name="viewport"' in page
    assert "max-width" in page


def test_an_error_handler_gets_the_text_that_its_client_can_read():
    app = make_app()
    app.add_url_rule("/", "pay", one_time_token(lambda: "paid"), methods=["POST"])
    app.register_error_handler(TokenMissing, lambda error: (error.description, error.code))
    client = app.test_client()
    assert "header Idempotence-Token" in client.post("/").text
    page = client.post("/", headers={"Accept": "text/html"})
    assert page.text == TokenMissing.page


@pytest.mark.parametrize(
    ("of_the_route", "of_messages", "of_the_lock", "shown"),
    [
        ("route", "messages", "lock", "route"),
        (None, "messages", "lock", "messages"),
        (None, None, "lock", "lock"),
        ("route", None, "lock", "route"),
    ],
)
def test_the_route_comes_first_and_the_message_of_the_lock_last(
    of_the_route, of_messages, of_the_lock, shown
):
    texts = {} if of_messages is None else {"repeat-submit": of_messages}
    settings = {"IDEMPOTENCE_MESSAGES": texts, "IDEMPOTENCE_LOCK_MESSAGE": of_the_lock}
    assert refused(locked_app(of_the_route, **settings)).json["detail"] == shown


def test_a_lazy_text_is_made_for_each_request_and_is_never_markup():
    def text():
        language = request.accept_languages.best_match(["de", "zh"], "en")
        texts = {"de": "Nicht <b>zweimal</b>!", "zh": "请勿重复提交", "en": "Once."}
        return Markup(texts[language])

    app = locked_app(IDEMPOTENCE_MESSAGES={"repeat-submit": LazyString(text)})
    by_language = [
        refused(app, **{"Accept-Language": name}).json["detail"] for name in ("zh", "fr")
    ]
    assert by_language == ["请勿重复提交", "Once."]
    page = refused(app, **{"Accept-Language": "de", "Accept": "text/html"}).text
    assert "Nicht &lt;b&gt;zweimal&lt;/b&gt;!" in page


@pytest.mark.parametrize("message", [Markup("<b>no</b>"), Lazy(lambda: Markup("<b>no</b>"))])
def test_a_text_of_the_route_is_never_markup_either(message):
    app = locked_app(message)
    assert "&lt;b&gt;no&lt;/b&gt;" in refused(app, Accept="text/html").text
    assert refused(app).json["detail"] == "<b>no</b>"


NOT_MADE = {
    "an error": lambda: 1 / 0,
    "an answer": lambda: abort(400),
    "no string": lambda: 17,
    "half a character": lambda: "\ud800",  # no page can be encoded with it
}


@pytest.mark.parametrize("accept", ["application/json", "text/html"])
@pytest.mark.parametrize("kind", NOT_MADE)
@pytest.mark.parametrize("where", ["the setting", "the route", "the lock"])
def test_a_text_that_cannot_be_made_is_replaced_by_the_built_in_one(caplog, accept, kind, where):
    lazy = Lazy(NOT_MADE[kind])
    texts = {
        "the setting": {"IDEMPOTENCE_MESSAGES": {"repeat-submit": lazy}},
        "the route": {"message": lazy},
        "the lock": {"IDEMPOTENCE_LOCK_MESSAGE": lazy},
    }
    answer = refused(locked_app(**texts[where]), Accept=accept)
    assert answer.status_code == 409
    assert RepeatSubmit.description in answer.text
    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "IDEMPOTENCE_MESSAGES" in record.getMessage()
    assert "repeat-submit" in record.getMessage()


def test_running_outside_a_request_is_raised_whatever_its_text_needs():
    idempotence = Idempotence()
    lazy = Lazy(lambda: request.path)
    app = make_app(idempotence=idempotence, IDEMPOTENCE_MESSAGES={"key-in-progress": lazy})

    def attempt():
        with app.app_context(), idempotence.once("jobs", 1):
            pass

    with app.app_context(), idempotence.once("jobs", 1):
        with pytest.raises(Running) as caught:
            elsewhere(attempt)
        assert caught.value.description == Running.description
        app.extensions["idempotence"].config.messages["key-in-progress"] = "Wait."
        with pytest.raises(Running, match="Wait"):
            elsewhere(attempt)


# The document, as the application writes JSON


def with_trace(text):
    return json.dumps(json.loads(text) | {"trace": "17"})


WRITERS = {
    "the application's own": (with_trace, "17"),
    "an error": (lambda text: 1 / 0, None),
    "bytes": (str.encode, None),
    "nothing": (lambda text: None, None),
    "half a character": (lambda text: text + "\ud800", None),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_the_json_provider_writes_the_document_and_if_it_fails_costs_no_refusal(kind):
    write, trace = WRITERS[kind]

    class Provider(DefaultJSONProvider):
        def dumps(self, obj, **kwargs):
            text = super().dumps(obj, **kwargs)
            return write(text) if "detail" in obj else text

    app = locked_app(IDEMPOTENCE_MESSAGES={"repeat-submit": TEXT})
    app.json = Provider(app)
    answer = refused(app)
    assert answer.status_code == 409
    assert (answer.json["detail"], answer.json.get("trace")) == (TEXT, trace)


def test_a_refusal_needs_no_application_for_its_body():
    assert json.loads(RepeatSubmit("No.").get_body())["detail"] == "No."


def test_the_base_of_several_refusals_can_be_raised_in_a_test():
    with pytest.raises(TokenError) as caught:
        raise TokenError("No.")
    assert caught.value.description == "No."


# The setting


def test_the_command_shows_the_texts_and_names_those_that_cannot_be_made():
    texts = {"repeat-submit": "请勿重复提交", "key-missing": Lazy(lambda: 1 / 0)}
    app = make_app(IDEMPOTENCE_MESSAGES=texts)
    told = app.test_cli_runner().invoke(args=["idempotence", "config", "--json"]).output
    [row] = [row for row in json.loads(told)["settings"] if row["name"] == "IDEMPOTENCE_MESSAGES"]
    assert row["value"] == {"repeat-submit": "请勿重复提交", "key-missing": "(Lazy)"}

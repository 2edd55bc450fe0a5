"""IDEMPOTENCE_MESSAGES: the texts of refusals, in documents, on pages and in every language."""

import json
import re

import pytest
from babel.messages import Catalog
from babel.messages.mofile import write_mo
from flask import Flask, abort, request
from flask.json.provider import DefaultJSONProvider
from flask_babel import Babel, lazy_gettext
from helpers.apps import make_app
from helpers.http_transcripts import BLOCK, TranscriptClient
from helpers.once_operations import elsewhere
from helpers.refusal_cases import REFUSAL_CASES, RefusalCase
from helpers.repository import REFERENCE, REFUSALS, section, text_of
from markupsafe import Markup

from flask_idempotence import (
    ConfigurationError,
    Idempotence,
    RepeatSubmit,
    ResponseNotStored,
    Running,
    TokenMissing,
    no_repeat_submit,
    one_time_token,
)
from flask_idempotence.errors import SLUGS

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


def test_the_settings_know_every_refusal():
    assert sorted(SLUGS) == sorted(REFUSALS)


def body_of(slug, accept):
    """Return the body of a refusal, refused as its section of the documentation shows."""
    [asked] = BLOCK.findall(section(REFERENCE / "errors.md", slug))[:1]
    case = REFUSAL_CASES[slug]()
    head, _, body = asked[2].partition("\n\n")
    sent = f"{head.rstrip()}\nAccept: {accept}\n\n{body}"
    answer = TranscriptClient(case.app, dict(case.names)).exchange(sent)
    return answer.partition("\n\n")[2]


BUT_THE_LOCK = [slug for slug in REFUSALS if slug != "repeat-submit"]


@pytest.mark.parametrize("slug", BUT_THE_LOCK)
def test_every_refusal_and_its_page_have_the_text_of_the_setting(monkeypatch, slug):
    monkeypatch.setattr(RefusalCase, "settings", {"IDEMPOTENCE_MESSAGES": {slug: TEXT}})
    document = json.loads(body_of(slug, "application/json"))
    assert (document["detail"], document["title"]) == (TEXT, REFUSALS[slug].title)
    escaped = TEXT.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert f"<p>{escaped}</p>" in body_of(slug, "text/html")


FOR_PROGRAMMERS = re.compile(r"(?i)\btokens?\b|\bkeys?\b|header|\bfetch|\brequest|response")


@pytest.mark.parametrize("slug", BUT_THE_LOCK)
def test_the_page_of_every_refusal_speaks_to_people(slug):
    [text] = re.findall(r"<p>(.*)</p>", body_of(slug, "text/html"))
    shown = re.search(rf"(?m)^\| `{slug}` \| (.*) \|$", text_of(REFERENCE / "errors.md"))
    assert text == shown[1]
    assert not FOR_PROGRAMMERS.search(text)
    assert json.loads(body_of(slug, "*/*"))["detail"] != REFUSALS[slug].page


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


def test_a_lazy_gettext_is_translated_for_each_request(tmp_path):
    for language, text in {"de": "Nicht zweimal!", "zh": "请勿重复提交"}.items():
        catalog = Catalog(locale=language)
        catalog.add("Not twice!", text)
        path = tmp_path / language / "LC_MESSAGES" / "messages.mo"
        path.parent.mkdir(parents=True)
        with path.open("wb") as file:
            write_mo(file, catalog)
    app = locked_app(
        IDEMPOTENCE_MESSAGES={"repeat-submit": lazy_gettext("Not twice!")},
        BABEL_TRANSLATION_DIRECTORIES=str(tmp_path),
    )
    Babel(app, locale_selector=lambda: request.accept_languages.best_match(["en", "de", "zh"]))
    told = [
        refused(app, **{"Accept-Language": language}).json["detail"]
        for language in ("de", "zh", "en")
    ]
    assert told == ["Nicht zweimal!", "请勿重复提交", "Not twice!"]


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


@pytest.mark.parametrize("message", [Markup("<b>no</b>"), Lazy(lambda: Markup("<b>no</b>"))])
@pytest.mark.parametrize("where", ["the setting", "the route"])
def test_a_text_is_never_markup(message, where):
    if where == "the route":
        app = locked_app(message)
    else:
        app = locked_app(IDEMPOTENCE_MESSAGES={"repeat-submit": message})
    assert "&lt;b&gt;no&lt;/b&gt;" in refused(app, Accept="text/html").text
    assert refused(app).json["detail"] == "<b>no</b>"


def test_a_refused_result_has_the_text_of_the_setting():
    """`ResponseNotStored` of `once`, which gives a text of its own."""
    idempotence = Idempotence()
    app = make_app(
        idempotence=idempotence,
        IDEMPOTENCE_MESSAGES={"response-not-stored": TEXT},
        IDEMPOTENCE_KEY_MAX_BODY=10,
    )
    with app.app_context():
        with idempotence.once("jobs", 1) as job:
            job.result = "x" * 100
        with (
            idempotence.once("jobs", 1) as again,
            pytest.raises(ResponseNotStored) as caught,
        ):
            _ = again.result
    assert caught.value.description == TEXT


# The document, as the application writes JSON


def test_chinese_is_sent_as_it_is_read():
    app = locked_app(IDEMPOTENCE_MESSAGES={"repeat-submit": TEXT})
    escaped = refused(app)
    app.json.ensure_ascii = False
    plain = refused(app)
    assert "请勿重复提交".encode() in plain.data
    assert b"\\u8bf7" in escaped.data
    assert plain.json == escaped.json
    assert list(plain.json) == ["type", "title", "status", "detail"]
    assert plain.content_length == len(plain.data)


NO_TEXTS = {
    "an error": lambda text: 1 / 0,
    "bytes": str.encode,
    "nothing": lambda text: None,
    "half a character": lambda text: text + "\ud800",
}


@pytest.mark.parametrize("kind", NO_TEXTS)
def test_a_json_provider_that_returns_no_text_costs_no_refusal(kind):
    class Provider(DefaultJSONProvider):
        def dumps(self, obj, **kwargs):
            text = super().dumps(obj, **kwargs)
            return NO_TEXTS[kind](text) if "detail" in obj else text

    app = locked_app(IDEMPOTENCE_MESSAGES={"repeat-submit": TEXT})
    app.json = Provider(app)
    answer = refused(app)
    assert answer.status_code == 409
    assert json.loads(answer.data)["detail"] == TEXT


def test_a_refusal_needs_no_application_for_its_body():
    assert json.loads(RepeatSubmit("No.").get_body())["detail"] == "No."


def test_a_provider_of_the_application_writes_the_document():
    class Marked(DefaultJSONProvider):
        def dumps(self, obj, **kwargs):
            return super().dumps({**obj, "trace": "17"} if "detail" in obj else obj, **kwargs)

    app = locked_app()
    app.json = Marked(app)
    assert refused(app).json["trace"] == "17"


# The setting


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"repeat-sumbit": "No."}, "'repeat-sumbit'"),
        ({"repeat-sumbit": "No."}, "Did you mean 'repeat-submit'?"),
        ({"KEY_MISSING": "No."}, "Did you mean 'key-missing'?"),
        ({17: "No."}, "17"),
        ({"repeat-submit": None}, "'repeat-submit' needs a text"),
        ({"repeat-submit": 17}, "'repeat-submit' needs a text"),
        ({"repeat-submit": True}, "'repeat-submit' needs a text"),
        ({"repeat-submit": b"No."}, "'repeat-submit' needs a text"),
        ({"repeat-submit": ["No."]}, "'repeat-submit' needs a text"),
        ({"repeat-submit": " "}, "'repeat-submit' needs a text"),
        ({"repeat-submit": "\ud800"}, "'repeat-submit' needs a text"),
        ({"repeat-submit": lambda: "No."}, "'repeat-submit' needs a text"),
        ({"repeat-submit": lazy_gettext}, "'repeat-submit' needs a text"),
        ([("repeat-submit", "No.")], "mapping"),
        ("No.", "mapping"),
        (None, "Must not be None."),
    ],
)
def test_an_unknown_slug_or_what_is_no_text_is_refused_at_start(given, said):
    with pytest.raises(ConfigurationError) as caught:
        make_app(IDEMPOTENCE_MESSAGES=given)
    assert "IDEMPOTENCE_MESSAGES" in str(caught.value)
    assert said in str(caught.value)


def test_the_texts_may_come_from_the_environment(monkeypatch):
    texts = {"repeat-submit": "Once is enough.", "key-missing": "缺少幂等键"}
    monkeypatch.setenv("SHOP_IDEMPOTENCE_MESSAGES", json.dumps(texts))
    app = Flask("shop")
    app.config.from_prefixed_env("SHOP")
    Idempotence(app)
    assert app.extensions["idempotence"].config.messages == texts


def test_the_command_shows_the_texts_and_names_those_that_cannot_be_made():
    texts = {"repeat-submit": "请勿重复提交", "key-missing": Lazy(lambda: 1 / 0)}
    app = make_app(IDEMPOTENCE_MESSAGES=texts)
    runner = app.test_cli_runner()
    told = runner.invoke(args=["idempotence", "config"]).output
    assert "{'repeat-submit': '请勿重复提交', 'key-missing': '(Lazy)'}\tset" in told
    told = json.loads(runner.invoke(args=["idempotence", "config", "--json"]).output)["settings"]
    [row] = [row for row in told if row["name"] == "IDEMPOTENCE_MESSAGES"]
    assert row["value"] == {"repeat-submit": "请勿重复提交", "key-missing": "(Lazy)"}

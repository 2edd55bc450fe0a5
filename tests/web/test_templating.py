"""What templates are given: the field, the meta element, the script and their addresses."""

import json
import re

import pytest
from flask import Blueprint, Flask, render_template_string
from helpers.apps import WERKZEUG_REFUSES_EQUAL_RULES, bare_app, make_app
from helpers.refusal_cases import NOBODY
from helpers.template_pages import ALL, Elements, page_app, page_of
from jinja2 import DictLoader
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from flask_idempotence import (
    ConfigurationError,
    Idempotence,
    StoreUnavailable,
    TokenMissing,
    one_time_token,
)
from flask_idempotence.testing import record_signals


def test_the_field_holds_a_fresh_token_that_is_good_once():
    app = page_app("{{ idempotence_field() }}")
    field, other = page_of(app)["input"], page_of(app)["input"]
    assert field | {"value": ""} == {
        "type": "hidden",
        "name": "idempotence_token",
        "value": "",
        "autocomplete": "off",
        "data-idempotence-expires-in": "300",
    }
    assert field["value"] != other["value"]
    data = {field["name"]: field["value"]}
    assert [app.test_client().post("/", data=data).status_code for _ in range(2)] == [200, 409]


def test_the_field_follows_the_settings():
    app = page_app(IDEMPOTENCE_TOKEN_FIELD='on"ce<', IDEMPOTENCE_TOKEN_TTL=90.5)
    field = page_of(app)["input"]
    assert (field["name"], field["data-idempotence-expires-in"]) == ('on"ce<', "90")


def test_a_token_for_a_purpose_in_a_field_or_bare():
    app = page_app(
        "{{ idempotence_field('pay') }}<b data-token=\"{{ idempotence_token('pay') }}\">"
    )
    pay = one_time_token(purpose="pay")(lambda: "paid")
    app.add_url_rule("/pay", "pay", pay, methods=["POST"])
    client = app.test_client()
    with record_signals(app) as recorder:
        page = page_of(app)
    issued = [told["purpose"] for name, told in recorder.events if name == "token_issued"]
    assert issued == ["pay", "pay"]
    field, bare = page["input"], {"Idempotence-Token": page["b"]["data-token"]}
    assert field["data-idempotence-purpose"] == "pay"
    assert client.post("/", headers=bare).status_code == 400  # of another purpose
    assert client.post("/pay", data={field["name"]: field["value"]}).status_code == 200
    assert client.post("/pay", headers=bare).status_code == 200


def test_an_empty_field_asks_no_store_and_its_page_may_be_stored():
    app = page_app(
        "{{ idempotence_field('pay', empty=True) }}",
        headers={"Cache-Control": "max-age=600"},
        IDEMPOTENCE_STORAGE_URI=NOBODY,
        IDEMPOTENCE_TOKEN_FIELD="ticket",
    )
    assert page_of(app)["input"] == {
        "type": "hidden",
        "name": "ticket",
        "value": "",
        "autocomplete": "off",
        "data-idempotence-purpose": "pay",
    }
    assert app.test_client().get("/").headers["Cache-Control"] == "max-age=600"


def test_an_empty_field_that_no_script_could_fill_is_a_mistake_of_the_template():
    template = "{{ idempotence_field(empty=True) }}"
    with pytest.raises(ConfigurationError, match="IDEMPOTENCE_TOKEN_URL, which is None"):
        page_app(template, IDEMPOTENCE_TOKEN_URL=None).test_client().get("/")


@pytest.mark.parametrize("empty", [False, True])
def test_a_bad_purpose_is_a_mistake_of_the_template(empty):
    template = "{{ idempotence_field('two words', empty=" + str(empty) + ") }}"
    with pytest.raises(ValueError, match="purpose is 1 to 64 letters"):
        page_app(template).test_client().get("/")


def test_the_functions_are_there_in_imported_macros_and_outside_requests():
    app = make_app()
    macro = "{% macro form() %}{{ idempotence_field() }}{% endmacro %}"
    app.jinja_loader = DictLoader({"macros.html": macro})
    with app.app_context():
        text = render_template_string("{% import 'macros.html' as ours %}{{ ours.form() }}")
    assert Elements(text)["input"]["value"]


def test_where_the_store_is_away_the_page_is_a_refusal_and_is_told():
    app = page_app(
        IDEMPOTENCE_STORAGE_URI=NOBODY,
        IDEMPOTENCE_PROBLEM_BASE="https://shop.test/",
    )
    with record_signals(app) as recorder:
        answer = app.test_client().get("/")
    assert (answer.status_code, answer.json["type"]) == (
        503,
        "https://shop.test/store-unavailable",
    )
    (error,) = [arguments["error"] for name, arguments in recorder.events if name == "rejected"]
    assert isinstance(error, StoreUnavailable)


@pytest.mark.parametrize(
    ("sent", "status"), [({"idempotence_token": "token"}, 503), ({}, 400)], ids=["one", "none"]
)
def test_the_field_of_an_error_handlers_page_is_empty_where_the_store_is_away(sent, status):
    app = page_app(IDEMPOTENCE_STORAGE_URI=NOBODY)

    @app.errorhandler(StoreUnavailable)
    @app.errorhandler(TokenMissing)
    def show_again(error):
        return render_template_string(ALL + "<b>{{ idempotence_token() }}</b>"), error.code

    if sent:
        with app.test_request_context():
            tokens = app.extensions["idempotence"].engine.services.tokens
            sent = {"idempotence_token": tokens.make(app, None, None).text}
    answer = app.test_client().post("/", data=sent)
    field = Elements(answer.text)["input"]
    assert (answer.status_code, field["value"]) == (status, "")
    assert "data-idempotence-expires-in" not in field
    assert answer.text.endswith("<b></b>")
    answer = app.test_client().get("/")  # whose own field is refused
    assert (answer.status_code, Elements(answer.text)["input"]["value"]) == (503, "")


def test_the_meta_element_tells_scripts_the_settings():
    names = {"tokenUrl", "tokenHeader", "tokenField", "keyHeader"}
    meta = page_of(page_app())["meta"]
    assert meta["name"] == "idempotence"
    assert json.loads(meta["content"]) == {
        "tokenUrl": "/token",
        "tokenHeader": "Idempotence-Token",
        "tokenField": "idempotence_token",
        "keyHeader": "Idempotency-Key",
    }
    settings = {"TOKEN_URL": "/a/'b\"", "TOKEN_HEADER": "X-Once", "TOKEN_FIELD": "</meta>\"'"}
    settings["KEY_HEADER"] = "X-Key"
    app = page_app(**{f"IDEMPOTENCE_{name}": value for name, value in settings.items()})
    told = json.loads(page_of(app)["meta"]["content"])
    assert set(told) == names
    assert app.test_client().get(told["tokenUrl"]).status_code == 200
    assert (told["tokenHeader"], told["tokenField"]) == ("X-Once", "</meta>\"'")
    assert told["keyHeader"] == "X-Key"


def test_without_a_token_url_the_rest_works():
    app = page_app(IDEMPOTENCE_TOKEN_URL=None)
    page = page_of(app)
    assert json.loads(page["meta"]["content"])["tokenUrl"] is None
    assert app.test_client().get(page["script"]["src"]).status_code == 200
    assert page["input"]["value"]


def test_the_script_element_is_deferred_and_carries_the_nonce_if_there_is_one():
    page = page_of(page_app("{{ idempotence_script(nonce='a\"b') }}"))
    assert page["script"] | {"src": ""} == {"src": "", "defer": None, "nonce": 'a"b'}
    assert set(page_of(page_app())["script"]) == {"src", "defer"}


def test_nothing_is_said_inline():
    text = page_app().test_client().get("/").text
    assert re.findall(r"<script[^>]*>([^<]*)</script>", text) == [""]
    assert not re.search(r"\son\w+=|style=|javascript:", text)


def test_the_script_is_kept_where_its_version_is_asked_for_and_asked_again_elsewhere():
    app = page_app()
    client, src = app.test_client(), page_of(app)["script"]["src"]
    script = client.get(src)
    assert (script.status_code, script.mimetype) == (200, "text/javascript")
    assert "globalThis.idempotence" in script.text
    assert script.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    for other in (src.partition("?")[0], src + "x"):
        again = client.get(other)
        assert (again.status_code, again.headers["Cache-Control"]) == (200, "no-cache")
        known = {"If-None-Match": again.headers["ETag"]}
        assert client.get(other, headers=known).status_code == 304


def test_the_module_is_served_and_nothing_else_is():
    client = make_app().test_client()
    module = client.get("/_idempotence/idempotence.mjs")
    assert (module.status_code, module.mimetype) == (200, "text/javascript")
    for name in ("idempotence.d.ts", "", "..%2fviews.py", "../views.py", "none.js"):
        assert client.get(f"/_idempotence/{name}").status_code == 404
    assert client.post("/_idempotence/idempotence.js").status_code == 405


def test_neither_an_own_static_folder_nor_a_catch_all_is_in_the_way():
    app = page_app(ALL)
    app.add_url_rule("/<path:anything>", "rest", lambda anything: "the rest")
    assert "globalThis" in app.test_client().get(page_of(app)["script"]["src"]).text
    assert app.test_client().get("/other").text == "the rest"
    assert app.static_url_path == "/static"


def page():
    return render_template_string(ALL)


def mounted():
    app = bare_app()
    app.wsgi_app = DispatcherMiddleware(app.wsgi_app, {"/shop": page_app()})
    return app


def with_hosts():
    app = bare_app(host_matching=True)
    app.add_url_rule("/", "page", lambda any_: page(), host="<any_>")
    return app


def with_subdomains():
    app = bare_app(subdomain_matching=True, SERVER_NAME="shop.test")
    app.add_url_rule("/", "page", page)
    app.add_url_rule("/", "sub", lambda any_: page(), subdomain="<any_>")
    return app


def with_blueprint():
    app, shop = bare_app(), Blueprint("shop", __name__, url_prefix="/shop")
    shop.add_url_rule("/", "page", page)
    app.register_blueprint(shop)
    return app


@pytest.mark.parametrize(
    ("make", "host", "path", "token_url"),
    [
        (mounted, "localhost", "/shop/", "/shop/token"),
        (with_hosts, "a.test", "/", "/token"),
        (with_hosts, "b.test:8080", "/", "/token"),
        (with_subdomains, "shop.test", "/", "/token"),
        (with_subdomains, "a.shop.test", "/", "/token"),
        (with_blueprint, "localhost", "/shop/", "/token"),
    ],
)
def test_the_addresses_on_a_page_are_those_of_its_place(make, host, path, token_url):
    app, at = make(), {"base_url": f"http://{host}"}
    Idempotence(app)
    page = page_of(app, path, **at)
    assert json.loads(page["meta"]["content"])["tokenUrl"] == token_url
    for url in (page["script"]["src"], token_url):
        assert url.startswith("/")
        assert app.test_client().get(url, **at).status_code == 200


@pytest.mark.skipif(WERKZEUG_REFUSES_EQUAL_RULES, reason="Werkzeug refuses it itself")
def test_a_token_url_that_a_subdomain_has_taken_is_found():
    app = bare_app(subdomain_matching=True, SERVER_NAME="shop.test")
    Idempotence(app)
    app.add_url_rule("/token", "taken", lambda tenant: tenant, subdomain="<tenant>")
    app.testing = True
    with pytest.raises(ConfigurationError, match=r"idempotence\.token.*taken"):
        app.test_client().get("/token", base_url="http://a.shop.test")


def test_options_of_the_templates_are_set_before_the_extension():
    early, late = Flask("early"), Flask("late")
    for app in (early, late):
        app.config["SECRET_KEY"] = "for tests"
    early.config["TEMPLATES_AUTO_RELOAD"] = True
    for app in (early, late):
        Idempotence(app)
    late.config["TEMPLATES_AUTO_RELOAD"] = True
    assert [app.jinja_env.auto_reload for app in (early, late)] == [True, False]

"""What templates are given: the field, the meta element, the script and their addresses."""

import json
import re

import pytest
from flask import Blueprint, render_template_string
from helpers.apps import bare_app, make_app
from helpers.servers.processes import HOST, free_port
from helpers.template_pages import ALL, Elements, page_app, page_of
from jinja2 import DictLoader
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.test import Client

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


def test_a_token_for_a_purpose():
    app = make_app()
    app.add_url_rule(
        "/pay", "pay", one_time_token(purpose="pay")(lambda: "paid"), methods=["POST"]
    )
    app.add_url_rule("/", "form", lambda: render_template_string("{{ idempotence_field('pay') }}"))
    field = page_of(app)["input"]
    assert field["data-idempotence-purpose"] == "pay"
    data = {field["name"]: field["value"]}
    assert app.test_client().post("/pay", data=data).status_code == 200


def test_an_empty_field_asks_no_store_and_its_page_may_be_stored():
    away = f"redis://{HOST}:{free_port()}/0"
    app = page_app(
        "{{ idempotence_field('pay', empty=True) }}",
        headers={"Cache-Control": "max-age=600"},
        IDEMPOTENCE_STORAGE_URI=away,
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


def test_the_bare_token_fits_where_no_field_is():
    app = page_app("<b data-token='{{ idempotence_token() }}'>")
    headers = {"Idempotence-Token": page_of(app)["b"]["data-token"]}
    assert app.test_client().post("/", headers=headers).status_code == 200


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


def test_each_page_tells_that_tokens_were_issued():
    app = page_app("{{ idempotence_field() }}{{ idempotence_token('pay') }}")
    with record_signals(app) as recorder:
        app.test_client().get("/")
    issued = [
        arguments["purpose"] for name, arguments in recorder.events if name == "token_issued"
    ]
    assert issued == [None, "pay"]


def test_where_the_store_is_away_the_page_is_a_refusal_and_is_told():
    app = page_app(
        IDEMPOTENCE_STORAGE_URI=f"redis://{HOST}:{free_port()}/0",
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
    app = page_app(IDEMPOTENCE_STORAGE_URI=f"redis://{HOST}:{free_port()}/0")

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


def addresses_of(client, **options):
    page = Elements(client.get("/", **options).text)
    token_url = json.loads(page["meta"]["content"])["tokenUrl"]
    for url in (page["script"]["src"], token_url):
        assert url.startswith("/")
        assert client.get(url, **options).status_code == 200
    return token_url


def test_addresses_where_the_application_is_mounted_below_another():
    mounted = DispatcherMiddleware(bare_app(), {"/shop": page_app()})
    page = Elements(Client(mounted).get("/shop/").text)
    told = json.loads(page["meta"]["content"])
    assert told["tokenUrl"] == "/shop/token"
    assert Client(mounted).get("/shop/token").status_code == 200
    assert Client(mounted).get(page["script"]["src"]).status_code == 200


@pytest.mark.parametrize("host", ["a.test", "b.test:8080"])
def test_addresses_where_hosts_are_matched(host):
    app = bare_app(host_matching=True)
    Idempotence(app)
    app.add_url_rule("/", "page", lambda any_: render_template_string(ALL), host="<any_>")
    assert addresses_of(app.test_client(), base_url=f"http://{host}") == "/token"


@pytest.mark.parametrize("host", ["shop.test", "a.shop.test"])
def test_addresses_where_subdomains_are_matched(host):
    app = bare_app(subdomain_matching=True, SERVER_NAME="shop.test")
    Idempotence(app)
    app.add_url_rule("/", "page", lambda: render_template_string(ALL))
    app.add_url_rule("/", "sub", lambda any_: render_template_string(ALL), subdomain="<any_>")
    assert addresses_of(app.test_client(), base_url=f"http://{host}") == "/token"


def test_addresses_on_pages_of_a_blueprint():
    app = make_app()
    shop = Blueprint("shop", __name__, url_prefix="/shop")
    shop.add_url_rule("/", "page", lambda: render_template_string(ALL))
    app.register_blueprint(shop)
    page = page_of(app, "/shop/")
    assert json.loads(page["meta"]["content"])["tokenUrl"] == "/token"
    assert app.test_client().get(page["script"]["src"]).status_code == 200


def test_a_token_url_that_a_subdomain_has_taken_is_found():
    app = bare_app(subdomain_matching=True, SERVER_NAME="shop.test")
    Idempotence(app)
    app.add_url_rule("/token", "taken", lambda tenant: tenant, subdomain="<tenant>")
    app.testing = True
    with pytest.raises(ConfigurationError, match=r"idempotence\.token.*taken"):
        app.test_client().get("/token", base_url="http://a.shop.test")

"""What templates are given, and pages that must not be stored."""

import json
import re
from html.parser import HTMLParser

import pytest
from apps import bare_app, make_app
from flask import (
    Blueprint,
    Response,
    abort,
    render_template_string,
    request,
    stream_template_string,
)
from flask_wtf import CSRFProtect, FlaskForm
from servers import HOST, free_port
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.test import Client
from wtforms import StringField
from wtforms.validators import DataRequired

from flask_idempotence import Idempotence, StoreUnavailable, one_time_token
from flask_idempotence.testing import record_signals

ALL = "{{ idempotence_meta() }}{{ idempotence_script() }}{{ idempotence_field() }}"


class Elements(HTMLParser):
    """Reads a page as a browser does: a list of elements, each with its attributes."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def __getitem__(self, tag):
        (attributes,) = [attributes for name, attributes in self.found if name == tag]
        return attributes


def page_app(template=ALL, *, headers=None, **settings):
    """Return an application whose GET / is the template, and whose POST / spends a token."""
    app = make_app(**settings)

    @app.route("/", methods=["GET", "POST"])
    @one_time_token()
    def page():
        return render_template_string(template), headers or {}

    return app


def page_of(app, path="/", **options):
    return Elements(app.test_client().get(path, **options).text)


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


def test_the_bare_token_fits_where_no_field_is():
    app = page_app("<b data-token='{{ idempotence_token() }}'>")
    headers = {"Idempotence-Token": page_of(app)["b"]["data-token"]}
    assert app.test_client().post("/", headers=headers).status_code == 200


def test_a_bad_purpose_is_a_mistake_of_the_template():
    with pytest.raises(ValueError, match="purpose is 1 to 64 letters"):
        page_app("{{ idempotence_field('two words') }}").test_client().get("/")


def test_the_functions_are_there_in_imported_macros_and_outside_requests():
    app = make_app()
    macro = "{% macro form() %}{{ idempotence_field() }}{% endmacro %}"
    with app.app_context():
        text = render_template_string(macro + "{{ form() }}{{ idempotence_token() }}")
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


def test_the_meta_element_tells_scripts_the_settings():
    names = {"tokenUrl", "tokenHeader", "tokenField", "keyHeader"}
    defaults = json.loads(page_of(page_app())["meta"]["content"])
    assert defaults == {
        "tokenUrl": "/token",
        "tokenHeader": "Idempotence-Token",
        "tokenField": "idempotence_token",
        "keyHeader": "Idempotency-Key",
    }
    settings = {"TOKEN_URL": "/a/'b\"", "TOKEN_HEADER": "X-Once", "TOKEN_FIELD": "</meta>\"'"}
    app = page_app(**{f"IDEMPOTENCE_{name}": value for name, value in settings.items()})
    told = json.loads(page_of(app)["meta"]["content"])
    assert set(told) == names
    assert app.test_client().get(told["tokenUrl"]).status_code == 200
    assert (told["tokenHeader"], told["tokenField"]) == ("X-Once", "</meta>\"'")


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


STORED = [None, "public, max-age=600", "private", "no-cache", "max-age=5, must-revalidate"]


@pytest.mark.parametrize("said", STORED)
@pytest.mark.parametrize("call", ["idempotence_field()", "idempotence_token()"])
def test_a_page_with_a_token_is_not_stored_whatever_the_view_says(said, call):
    headers = {} if said is None else {"Cache-Control": said}
    app = page_app("{{ " + call + " }}", headers=headers)
    answer = app.test_client().get("/")
    assert answer.headers.getlist("Cache-Control") == ["no-store"]


@pytest.mark.parametrize("said", ["no-store", "no-store, private", "No-Store, max-age=0"])
def test_a_view_that_forbids_it_itself_is_not_corrected(said):
    answer = page_app(headers={"Cache-Control": said}).test_client().get("/")
    assert answer.headers.getlist("Cache-Control") == [said]


@pytest.mark.parametrize("hook_first", [True, False])
def test_a_hook_of_the_application_is_not_the_last_word(hook_first):
    app = bare_app()

    def cache_everything(response):
        response.headers["Cache-Control"] = "public, max-age=600"
        return response

    if hook_first:
        app.after_request(cache_everything)
    Idempotence(app)
    if not hook_first:
        app.after_request(cache_everything)
    app.add_url_rule("/", "form", lambda: render_template_string("{{ idempotence_field() }}"))
    app.add_url_rule("/plain", "plain", lambda: render_template_string("{{ idempotence_meta() }}"))
    assert app.test_client().get("/").headers["Cache-Control"] == "no-store"
    assert app.test_client().get("/plain").headers["Cache-Control"] == "public, max-age=600"


@pytest.mark.parametrize("template", ["{{ idempotence_meta() }}", "{{ idempotence_script() }}"])
def test_a_page_without_a_token_may_be_stored(template):
    assert "Cache-Control" not in page_app(template).test_client().get("/").headers


def test_one_request_says_nothing_about_the_next_one():
    app = page_app()
    app.add_url_rule("/plain", "plain", lambda: "plain")
    with app.app_context():  # which the requests share
        client = app.test_client()
        assert client.get("/").headers["Cache-Control"] == "no-store"
        assert "Cache-Control" not in client.get("/plain").headers


def test_an_error_page_with_a_token_is_not_stored_either():
    app = make_app()
    app.register_error_handler(404, lambda _: (render_template_string(ALL), 404))
    app.add_url_rule("/", "gone", lambda: abort(404))
    answer = app.test_client().get("/")
    assert (answer.status_code, answer.headers["Cache-Control"]) == (404, "no-store")


def test_a_token_in_a_streamed_page_is_refused_where_its_headers_allow_storing():
    app = make_app()
    app.add_url_rule("/", "page", lambda: Response(stream_template_string(ALL)))
    with pytest.raises(RuntimeError, match="being streamed"):
        page_of(app)


def test_a_token_in_a_streamed_page_is_fine_where_they_do_not():
    app = make_app()
    headers = {"Cache-Control": "no-store"}
    app.add_url_rule("/", "page", lambda: Response(stream_template_string(ALL), headers=headers))
    assert page_of(app)["input"]["value"]


class OrderForm(FlaskForm):
    item = StringField(validators=[DataRequired()])


WTF_PAGE = """
<form method="post">
  {{ form.hidden_tag() }}{{ idempotence_field() }}{{ form.item }}{{ form.item.errors }}
</form>
"""


def wtf_app():
    """Return an application with a Flask-WTF form, and the list of what was ordered."""
    app, ordered = make_app(), []
    CSRFProtect(app)

    @app.route("/order", methods=["GET", "POST"])
    @one_time_token()
    def order():
        form = OrderForm()
        if form.validate_on_submit():
            ordered.append(form.item.data)
            return "ordered", 201
        return render_template_string(WTF_PAGE, form=form), 422 if request.form else 200

    return app, ordered


def hidden_in(answer):
    inputs = [attributes for tag, attributes in Elements(answer.text).found if tag == "input"]
    return {field["name"]: field["value"] for field in inputs if field["type"] == "hidden"}


def test_it_stands_beside_the_fields_of_flask_wtf():
    app, ordered = wtf_app()
    client = app.test_client()
    answer = client.get("/order")
    hidden = hidden_in(answer)
    assert set(hidden) == {"csrf_token", "idempotence_token"}
    assert answer.headers["Cache-Control"] == "no-store"
    data = hidden | {"item": "tea"}
    assert [client.post("/order", data=data).status_code for _ in range(2)] == [201, 409]
    assert client.post("/order", data=data | {"csrf_token": "forged"}).status_code == 400
    assert ordered == ["tea"]


def test_a_form_that_did_not_validate_comes_back_with_a_fresh_token():
    app, ordered = wtf_app()
    client = app.test_client()
    first = hidden_in(client.get("/order"))
    answer = client.post("/order", data=first | {"item": ""})
    again = hidden_in(answer)
    assert (answer.status_code, answer.headers["Cache-Control"]) == (422, "no-store")
    assert again["idempotence_token"] != first["idempotence_token"]
    data = again | {"item": "tea"}
    assert [client.post("/order", data=data).status_code for _ in range(2)] == [201, 409]
    assert ordered == ["tea"]

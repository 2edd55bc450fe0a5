"""Pages that carry a token: not stored by anybody, and at ease with Flask-WTF."""

import pytest
from flask import Response, render_template_string, request, stream_template_string
from flask_wtf import CSRFProtect, FlaskForm
from helpers.apps import bare_app, make_app
from helpers.template_pages import ALL, Elements, page_app, page_of
from wtforms import StringField
from wtforms.validators import DataRequired

from flask_idempotence import Idempotence, idempotent, one_time_token

PLAIN = "{{ idempotence_meta() }}{{ idempotence_script() }}"
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
    app.add_url_rule("/plain", "plain", lambda: render_template_string(PLAIN))
    assert app.test_client().get("/").headers["Cache-Control"] == "no-store"
    assert app.test_client().get("/plain").headers["Cache-Control"] == "public, max-age=600"


def test_one_request_says_nothing_about_the_next_one():
    app = page_app()
    app.add_url_rule("/plain", "plain", lambda: render_template_string(PLAIN))
    with app.app_context():  # which the requests share
        client = app.test_client()
        assert client.get("/").headers["Cache-Control"] == "no-store"
        assert "Cache-Control" not in client.get("/plain").headers


@pytest.mark.parametrize("said", [None, "public, max-age=600"])
@pytest.mark.parametrize("hook", [None, "public, max-age=600"])
def test_the_replay_of_a_page_with_a_token_is_not_stored_either(hook, said):
    app = make_app()

    @app.after_request
    def cache(response):
        if hook:
            response.headers["Cache-Control"] = hook
        return response

    @app.post("/")
    @idempotent
    def page():
        headers = {} if said is None else {"Cache-Control": said}
        return render_template_string("{{ idempotence_field() }}"), headers

    first, again = (
        app.test_client().post("/", headers={"Idempotency-Key": "one"}) for _ in range(2)
    )
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.data == first.data
    found = [answer.headers.getlist("Cache-Control") for answer in (first, again)]
    assert found == [["no-store"], ["no-store"]]


def test_a_token_in_a_streamed_page_is_refused_where_its_headers_allow_storing():
    app, headers = make_app(), {}
    app.add_url_rule("/", "page", lambda: Response(stream_template_string(ALL), headers=headers))
    with pytest.raises(RuntimeError, match="is streamed"):
        page_of(app)
    headers["Cache-Control"] = "no-store"
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


def test_a_form_of_flask_wtf_that_did_not_validate_comes_back_with_a_fresh_token():
    app, ordered = wtf_app()
    client = app.test_client()
    answer = client.get("/order")
    first = hidden_in(answer)
    assert set(first) == {"csrf_token", "idempotence_token"}
    assert answer.headers["Cache-Control"] == "no-store"
    answer = client.post("/order", data=first | {"item": ""})
    again = hidden_in(answer)
    assert (answer.status_code, answer.headers["Cache-Control"]) == (422, "no-store")
    assert again["idempotence_token"] != first["idempotence_token"]
    data = again | {"item": "tea"}
    assert [client.post("/order", data=data).status_code for _ in range(2)] == [201, 409]
    assert client.post("/order", data=data | {"csrf_token": "forged"}).status_code == 400
    assert ordered == ["tea"]

"""How guarded views come to be described: plain apispec, classes, whole-app mode."""

import pytest
from apispec import APISpec
from flask.views import MethodView
from helpers.apps import bare_app, make_app
from openapi_spec_validator import validate

from flask_idempotence import (
    ConfigurationError,
    exempt,
    idempotent,
    no_repeat_submit,
    one_time_token,
)
from flask_idempotence.openapi import IdempotencePlugin

CREATED = {"201": {"description": "Created"}}
PROBLEM = "application/problem+json"


def spec_of(app, version="3.1.0", **options):
    return APISpec("Shop", "1", version, plugins=[IdempotencePlugin(app)], **options)


def described(app, operation=None, method="post", *, validated=False, **options):
    """Return the description of one operation; to validate the whole takes a while."""
    spec = spec_of(app)
    operation = {"responses": CREATED} if operation is None else operation
    spec.path("/pay", operations={method: operation}, **options)
    if validated:
        validate(spec.to_dict())
    return spec.to_dict()["paths"]["/pay"][method]


def slugs(operation):
    """Return the problems of an operation by their statuses."""
    found = {}
    for status, response in operation["responses"].items():
        if PROBLEM in response.get("content", {}):
            types = response["content"][PROBLEM]["schema"]["allOf"][1]["properties"]["type"]
            found[status] = [problem.rpartition(":")[2] for problem in types["enum"]]
    return found


KEY = {
    "400": ["key-invalid"],
    "409": ["key-in-progress", "response-not-stored", "outcome-unknown", "lease-lost"],
    "422": ["key-reused"],
    "503": ["store-unavailable"],
}
LOCK = {"409": ["repeat-submit", "lease-lost"], "503": ["store-unavailable"]}


def headers_of(operation):
    return [one["name"] for one in operation.get("parameters", ())]


def done():
    return "done"


def test_plain_apispec_takes_a_view_or_a_rule():
    app, pay = make_app(), idempotent(done)
    app.add_url_rule("/pay", "pay", pay, methods=["POST"])
    [rule] = app.url_map.iter_rules("pay")
    operation = described(app, view=pay, validated=True)
    assert operation == described(app, rule=rule)
    assert slugs(operation) == KEY
    assert headers_of(operation) == ["Idempotency-Key"]
    assert list(operation["responses"]["201"]["headers"]) == [
        "Idempotent-Replayed",
        "Idempotent-Expires-In",
    ]


def test_what_the_author_has_described_stays():
    own = {"name": "IDEMPOTENCY-KEY", "in": "header", "schema": {"type": "string"}}
    query = {"name": "Idempotency-Key", "in": "query", "schema": {"type": "string"}}
    conflict = {
        "description": "Sold out",
        "headers": {"Retry-After": {"schema": {"type": "string"}}},
        "content": {
            "text/plain": {},
            PROBLEM: {"schema": {"type": "object"}, "example": {"title": "Sold out"}},
        },
    }
    given = {"parameters": [own], "responses": {**CREATED, 409: conflict}}
    operation = described(make_app(), given, view=idempotent(done), validated=True)
    assert operation["parameters"] == [own]
    found = operation["responses"]["409"]
    assert found["description"].startswith("Sold out; Request in progress (`key-in-progress`); ")
    assert found["headers"]["Retry-After"] == conflict["headers"]["Retry-After"]
    assert list(found["headers"]) == ["Retry-After", "Idempotence-Refusal"]
    assert list(found["content"]) == ["text/plain", PROBLEM]
    assert found["content"][PROBLEM]["example"] == {"title": "Sold out"}
    assert found["content"][PROBLEM]["schema"]["anyOf"][0] == {"type": "object"}
    assert "allOf" in found["content"][PROBLEM]["schema"]["anyOf"][1]
    bare = {"description": "Sold out", "content": {PROBLEM: {"example": {"title": "Sold out"}}}}
    given = {"parameters": [query], "responses": {**CREATED, 409: bare}}
    operation = described(make_app(), given, view=idempotent(done))
    assert headers_of(operation) == ["Idempotency-Key"] * 2
    assert operation["responses"]["409"]["content"] == bare["content"]


@pytest.mark.parametrize("name", ["default", "4XX", 400])
def test_a_status_of_its_own_hides_no_response_that_was_described_for_it(name):
    of_the_author = {
        "description": "Wrong",
        "headers": {"X-Trace": {"schema": {"type": "string"}}},
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
    given = {"responses": {**CREATED, name: of_the_author}}
    operation = described(make_app(), given, view=idempotent(done), validated=True)
    assert slugs(operation) == KEY
    found = operation["responses"]["400"]
    assert found["description"] == "Wrong; Key invalid (`key-invalid`)"
    assert set(found["headers"]) == {"X-Trace", "Idempotence-Refusal"}
    assert found["content"]["application/json"] == of_the_author["content"]["application/json"]
    if name != 400:
        assert operation["responses"][name] == of_the_author


def test_the_problems_have_a_schema_that_is_there_only_if_it_is_used():
    spec = spec_of(make_app())
    spec.path("/look", operations={"post": {"responses": CREATED}}, view=done)
    assert "components" not in spec.to_dict()
    spec.path("/pay", operations={"post": {"responses": CREATED}}, view=idempotent(done))
    problem = spec.to_dict()["components"]["schemas"]["IdempotenceProblem"]
    assert problem["required"] == ["type", "title", "status", "detail"]


def logged_in(view):
    def checked(*arguments, **options):
        return view(*arguments, **options)

    checked.__wrapped__ = view
    return checked


class Payments(MethodView):
    @idempotent
    def post(self):
        return "done"

    def patch(self):
        return "done"

    def get(self):
        return "done"


def of_class(*decorators):
    members = {"decorators": decorators, "post": lambda self: "done"}
    return type("Pay", (MethodView,), members).as_view("pay")


OF_BOTH = {
    "400": ["key-invalid", "token-missing", "token-invalid", "token-expired"],
    "403": ["token-not-yours"],
    "409": [*KEY["409"], "token-spent"],
    "422": ["key-reused"],
    "503": ["store-unavailable"],
}
NEVER_REUSED = {status: slugs for status, slugs in KEY.items() if status != "422"}
GET_TOO = no_repeat_submit(methods=["GET"])(done)


@pytest.mark.parametrize(
    ("view", "method", "problems"),
    [
        (None, "post", {}),
        (done, "post", {}),
        # Only the methods that a guard covers are described.
        (idempotent(done), "get", {}),
        (no_repeat_submit(done), "trace", {}),
        *((GET_TOO, method, LOCK) for method in ("get", "post", "put", "delete")),
        (idempotent(one_time_token()(done)), "post", OF_BOTH),
        (idempotent(compare=None)(done), "post", KEY),
        (idempotent(compare=dict)(done), "post", KEY),
        (idempotent(compare=False)(done), "post", NEVER_REUSED),
        # Each method of a class by its own guard, or by one among the class's decorators.
        (Payments.as_view("pay"), "post", KEY),
        (Payments.as_view("pay"), "patch", {}),
        (of_class(idempotent), "post", KEY),
        (of_class(idempotent, logged_in), "post", KEY),
    ],
)
def test_a_view_is_described_by_its_guards(view, method, problems):
    operation = described(make_app(), method=method, view=view, validated=True)
    assert slugs(operation) == problems
    assert set(operation["responses"]) == {"201", *problems}
    names = {"400": ["Idempotency-Key"], "403": ["Idempotence-Token"]}
    assert headers_of(operation) == [name for s in names if s in problems for name in names[s]]


def test_what_is_no_method_is_left_alone():
    spec = spec_of(make_app())
    spec.path("/pay", operations={"x-owner": {"team": "shop"}}, view=idempotent(done))
    assert spec.to_dict()["paths"]["/pay"] == {"x-owner": {"team": "shop"}}


CONFLICT, FIRST = ({"$ref": f"#/components/responses/{name}"} for name in ("Conflict", "Created"))


def components(spec, **options):
    for name in ("Conflict", "Created"):
        spec.components.response(name, {"description": name}, **options)


def operations(conflict="Conflict"):
    return {"post": {"responses": {"201": "Created", "409": conflict, "default": "Wrong"}}}


@pytest.mark.parametrize("lazy", [True, False])
def test_a_response_of_the_components_is_added_to_in_a_copy(lazy):
    spec = spec_of(make_app())
    components(spec, lazy=lazy)
    for path, conflict in [("/one", "Conflict"), ("/two", CONFLICT)]:
        spec.path(path, operations=operations(conflict), view=idempotent(done))
    spec.path("/three", operations=operations())
    spec.components.response("Wrong", {"description": "Wrong"})
    whole = spec.to_dict()
    validate(whole)
    one, two, three = (whole["paths"][path]["post"] for path in ("/one", "/two", "/three"))
    assert one == two
    assert slugs(one) == {"409": KEY["409"]}  # a default that nobody knows yet stands alone
    assert one["responses"]["409"]["description"].startswith("Conflict; Request in progress")
    assert "Idempotent-Replayed" in one["responses"]["201"]["headers"]
    assert three["responses"]["409"] == CONFLICT
    assert whole["components"]["responses"]["Conflict"] == {"description": "Conflict"}


def test_a_response_that_nobody_knows_yet_is_left_to_its_author():
    spec = spec_of(make_app())
    responses = {"201": "Created", "409": "Conflict"}
    spec.path("/pay", operations={"post": {"responses": responses}}, view=idempotent(done))
    components(spec)
    validate(spec.to_dict())
    found = spec.to_dict()["paths"]["/pay"]["post"]["responses"]
    assert (found["201"], found["409"]) == (FIRST, CONFLICT)
    assert set(found) == {"201", "400", "409", "422", "503"}


def whole_app():
    """Return an application in whole-app mode, and the rules of its views by their names."""
    app = make_app(IDEMPOTENCE_KEY_ALL_ROUTES=True, IDEMPOTENCE_KEY_REQUIRED=True)
    for name, view in {
        "plain": lambda: "done",
        "exempt": exempt(lambda: "done"),
        "own": idempotent(required=False)(lambda: "done"),
        "locked": no_repeat_submit(lambda: "done"),
    }.items():
        app.add_url_rule(f"/{name}", name, view, methods=["GET", "POST", "PUT"])
    app.add_url_rule("/class", view_func=Payments.as_view("class"))
    return app, {rule.endpoint: rule for rule in app.url_map.iter_rules()}


REQUIRED = KEY | {"400": ["key-missing", "key-invalid"]}
BOTH = REQUIRED | {"409": [*KEY["409"], "repeat-submit"]}


@pytest.mark.parametrize("when", ["before the first request", "after it"])
@pytest.mark.parametrize(
    ("name", "method", "problems"),
    [
        ("plain", "post", REQUIRED),
        ("plain", "get", {}),
        ("plain", "put", {}),
        ("exempt", "post", {}),
        ("own", "post", KEY),
        ("own", "put", KEY),
        ("locked", "post", BOTH),
        ("class", "post", REQUIRED),
        ("class", "patch", REQUIRED),
        ("class", "get", {}),
        ("static", "get", {}),
        ("idempotence.token", "get", {}),
    ],
)
def test_whole_app_mode_is_described_before_it_is_set_up(name, method, problems, when):
    app, rules = whole_app()
    if when == "after it":
        app.test_client().get("/plain")
    operation = described(app, method=method, rule=rules[name])
    assert slugs(operation) == problems
    assert headers_of(operation) == (["Idempotency-Key"] if problems else [])


def test_a_locked_search_by_query_is_described_as_openapi_3_2_has_it():
    """By the helper itself: apispec does not take operations of this method yet."""
    app = make_app()
    app.add_url_rule("/", "search", no_repeat_submit(methods=["QUERY"])(done), methods=["QUERY"])
    operations = {"query": {"responses": {}}}
    [plugin] = spec_of(app).plugins
    plugin.operation_helper("/", operations, view=app.view_functions["search"])
    assert list(operations["query"]["responses"]) == [409, 503]


def test_openapi_2_is_refused():
    with pytest.raises(ConfigurationError, match="OpenAPI 3"):
        spec_of(make_app(), "2.0")


def test_an_application_without_the_extension_is_told_so():
    with pytest.raises(ConfigurationError, match="not registered"):
        described(bare_app(), view=idempotent(done))

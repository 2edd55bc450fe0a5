"""`flask idempotence routes`: the guards of each route, and the origin of each rule."""

import json

from flask import Blueprint
from flask.views import MethodView
from helpers.apps import make_app
from helpers.cli_shell import invoke, rows

from flask_idempotence import exempt, idempotent, no_repeat_submit, one_time_token


def by_order():
    return 7


class Reports(MethodView):
    @no_repeat_submit(3, methods=["GET"])
    def get(self):
        return "report"

    def delete(self):
        return ""


def shop(**settings):
    app = make_app(**settings)

    @app.post("/orders/<int:number>")
    @no_repeat_submit(5, key=by_order, shared=True, ignore=["b", "a"])
    @idempotent(ttl=60, compare=False)
    def order(number):
        return str(number)

    @app.route("/checkout", methods=["GET", "POST"])
    @one_time_token("pay")
    def checkout():
        return "paid"

    @app.put("/free")
    def free():
        return ""

    @app.post("/exempt")
    @exempt
    def left_out():
        return ""

    app.add_url_rule("/reports", view_func=Reports.as_view("reports"))
    admin = Blueprint("admin", __name__, url_prefix="/admin")
    admin.post("/jobs")(idempotent(key=by_order)(lambda: "job"))
    app.register_blueprint(admin)
    return app


def routes(app, *options):
    return invoke(app, "routes", *options)


def shown(app, *options):
    return rows(routes(app, *options))


def test_every_unsafe_method_is_shown_with_its_guards_and_what_the_route_says():
    lock = "route: interval=5.0, ignore=['a', 'b'], key='by_order()', shared=True"
    assert shown(shop()) == [
        ["POST", "/admin/jobs", "admin.<lambda>", "key", "route: key='by_order()'"],
        ["POST", "/checkout", "checkout", "token", "route: purpose='pay'"],
        ["POST", "/exempt", "left_out", "exempt", ""],
        ["PUT", "/free", "free", "none", ""],
        ["POST", "/orders/<int:number>", "order", "lock", lock],
        ["POST", "/orders/<int:number>", "order", "key", "route: ttl=60.0, compare=False"],
        ["DELETE", "/reports", "reports", "none", ""],
        ["GET", "/reports", "reports", "lock", "route: interval=3.0"],
    ]


def test_a_setting_is_named_as_one_and_defaults_are_shown_when_they_are_asked_for():
    app = shop(IDEMPOTENCE_LOCK_MESSAGE="No.", IDEMPOTENCE_TOKEN_ENABLED=False)
    [lock] = [row for row in shown(app, "--defaults") if row[:2] == ["GET", "/reports"]]
    assert lock[4] == (
        "route: interval=3.0; setting: message='No.'; default: on_store_error='reject'"
    )
    assert ["POST", "/checkout", "checkout", "token (off)"] in [row[:4] for row in shown(app)]


def test_whole_app_mode_shows_the_guards_that_come_with_the_first_request():
    app = shop(IDEMPOTENCE_KEY_ALL_ROUTES=True, IDEMPOTENCE_KEY_METHODS=("PUT", "POST"))
    before = [(row[1], row[3]) for row in shown(app)]
    assert ("/free", "key (all routes)") in before
    assert [mode for rule, mode in before if rule == "/checkout"] == ["key (all routes)", "token"]
    assert [mode for rule, mode in before if rule == "/exempt"] == ["exempt"]
    app.test_client().put("/free")  # and now they stand there
    assert [(row[1], row[3].removesuffix(" (all routes)")) for row in shown(app)] == [
        (rule, mode.removesuffix(" (all routes)")) for rule, mode in before
    ]


def test_json_has_every_rule_with_its_origin():
    done = routes(shop(IDEMPOTENCE_KEY_WAIT=3, IDEMPOTENCE_KEY_PATTERN="[0-9a-f]+"), "--json")
    [job] = [route for route in json.loads(done.stdout) if route["rule"] == "/admin/jobs"]
    [guard] = job["guards"]
    assert (guard["mode"], guard["origin"], guard["enabled"]) == ("key", "route", True)
    rules = {rule["name"]: (rule["value"], rule["origin"]) for rule in guard["rules"]}
    assert rules["key"] == ("by_order()", "route")
    assert rules["wait"] == (3.0, "setting")
    assert rules["guarantee"] == ("at-least-once", "default")
    assert rules["key_pattern"] == ("[0-9a-f]+", "setting")


def test_a_session_is_shown_as_one(pay_app, tmp_path):
    site = pay_app(url=f"sqlite:///{tmp_path}/books.db")
    [row] = shown(site.app)
    assert "within='a session'" in row[4]


def test_strict_fails_where_an_unsafe_method_has_no_guard_and_is_not_exempt():
    app = make_app(IDEMPOTENCE_KEY_ALL_ROUTES=True)
    admin = Blueprint("admin", __name__)
    admin.delete("/jobs/<int:number>")(lambda number: "")
    app.add_url_rule("/login", "login", lambda: "", methods=["GET", "POST"])
    orders = type("Orders", (MethodView,), {"delete": lambda _: ""})
    app.add_url_rule("/orders", view_func=orders.as_view("orders"))
    app.register_blueprint(admin)
    assert (routes(app).exit_code, routes(app, "--strict").exit_code) == (0, 1)
    app.add_url_rule("/search", "search", lambda: "", methods=["QUERY"])
    for each in (app.view_functions["login"], orders.delete, admin):
        exempt(each)
    found = {row[2]: row[3] for row in shown(app, "--strict")}
    assert found == {"admin.<lambda>": "exempt", "login": "exempt", "orders": "exempt"}


def test_strict_passes_a_guard_that_is_switched_off():
    app = make_app(IDEMPOTENCE_KEY_ALL_ROUTES=True, IDEMPOTENCE_KEY_ENABLED=False)
    app.add_url_rule("/", view_func=by_order, methods=["POST"])
    assert shown(app, "--strict") == [["POST", "/", "by_order", "key (all routes) (off)", ""]]


def test_the_guard_of_a_blueprint_is_shown_with_its_name():
    app, api, orders = make_app(), Blueprint("api", __name__), Blueprint("orders", __name__)
    orders.add_url_rule("/orders", "create", lambda: "", methods=["POST"])
    orders.add_url_rule("/search", "search", exempt(lambda: ""), methods=["POST"])
    no_repeat_submit(3, unless=by_order)(orders)
    api.register_blueprint(orders)
    app.register_blueprint(idempotent(api))
    lock = "route: interval=3.0, unless='by_order()'"
    assert shown(app, "--strict") == [
        ["POST", "/orders", "api.orders.create", "lock (Blueprint api.orders)", lock],
        ["POST", "/orders", "api.orders.create", "key (Blueprint api)", ""],
        ["POST", "/search", "api.orders.search", "exempt", ""],
    ]

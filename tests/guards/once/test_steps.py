"""`step`: parts of an operation that are carried out once, however often it runs."""

import threading
from collections import Counter
from decimal import Decimal
from uuid import UUID

import pytest
from cryptography.fernet import Fernet
from helpers.apps import KEY, make_app
from helpers.every_store import EVERY_STORE, storage_settings

from flask_idempotence import ConfigurationError, Idempotence, idempotent
from flask_idempotence.errors import StoreError
from flask_idempotence.response.refusals import LeaseLost, Running


class Shop:
    """A payment of three steps, which fails where a test says so."""

    def __init__(self, decorate=None, **settings):
        self.idempotence = Idempotence()
        self.app = make_app(idempotence=self.idempotence, **settings)
        self.store = self.app.extensions["idempotence"].store
        self.runs, self.failing = Counter(), set()
        guard = decorate or idempotent()
        self.app.post("/pay")(guard(self.pay))
        self.client = self.app.test_client()

    def step(self, name, *more):
        with self.idempotence.step(name, *more) as step:
            if step.first:
                self.runs[name] += 1
                step.result = {name: self.runs[name]}
            if name in self.failing:
                raise RuntimeError(name)
        return step.result

    def pay(self):
        results = [self.step(name) for name in ("reserve", "charge", "book")]
        if "view" in self.failing:
            return "no", 503
        return results

    def send(self, path="/pay", headers=KEY, **options):
        self.app.testing = False  # errors are answers
        return self.client.post(path, headers=headers, **options)


@pytest.fixture(params=EVERY_STORE)
def shop(request):
    """A shop on each store, which encrypts its records."""
    settings = storage_settings(request.param, request)
    return Shop(IDEMPOTENCE_KEY_ENCRYPTION_KEYS=[Fernet.generate_key().decode()], **settings)


def test_finished_steps_give_their_results_when_the_view_runs_again(shop):
    shop.failing = {"book"}
    assert shop.send().status_code == 500
    assert shop.runs == {"reserve": 1, "charge": 1, "book": 1}
    shop.failing = {"view"}
    assert shop.send().status_code == 503
    shop.failing = set()
    answer = shop.send()
    assert answer.json == [{"reserve": 1}, {"charge": 1}, {"book": 2}]
    assert shop.runs == {"reserve": 1, "charge": 1, "book": 2}
    assert shop.send().headers["Idempotent-Replayed"] == "true"


def test_another_content_under_a_released_key_is_refused_by_the_first_step(shop):
    shop.failing = {"view"}
    shop.send(json={"amount": 1})
    other = shop.send(json={"amount": 2})
    assert (other.status_code, other.json["type"]) == (422, "urn:flask-idempotence:key-reused")
    shop.failing = set()
    assert shop.send(json={"amount": 1}).status_code == 200
    assert shop.runs["reserve"] == 1


@pytest.mark.parametrize(("route", "setting"), [("allow", "reject"), ("reject", "allow")])
def test_the_policy_of_the_route_is_that_of_its_steps(route, setting):
    shop = Shop(decorate=idempotent(on_store_error=route), IDEMPOTENCE_ON_STORE_ERROR=setting)
    claim = shop.store.claim

    def fail_for_steps(key, *more):
        if ":step:" in key:
            raise StoreError("down")
        return claim(key, *more)

    shop.store.claim = fail_for_steps
    assert shop.send().status_code == (200 if route == "allow" else 503)
    assert bool(shop.runs) is (route == "allow")


def test_nothing_of_an_operation_is_forgotten_while_a_step_runs():
    shop = Shop()
    with shop.app.app_context(), shop.idempotence.once("mail", 7):
        shop.step("render")
        with shop.idempotence.step("send"):
            # As after the lease of a process that is frozen.
            shop.store.clear("idempotence:2:once:")
            with pytest.raises(Running):
                shop.idempotence.forget("mail", 7)
            assert len(list(shop.store.scan("idempotence:2:step:"))) == 2
        assert shop.idempotence.forget("mail", 7) is False
        assert list(shop.store.scan("")) == []


def test_the_steps_are_forgotten_before_their_operation(monkeypatch):
    """Else a call that comes in between would run its steps by their old results."""
    shop = Shop()
    with shop.app.app_context():
        with shop.idempotence.once("mail", 7):
            shop.step("render")
        seen, discard = [], shop.store.discard

        def note(entries):
            seen.extend(key.split(":")[2] for key, _ in entries)
            return discard(entries)

        monkeypatch.setattr(shop.store, "discard", note)
        assert shop.idempotence.forget("mail", 7) is True
    assert seen == ["step", "once"]


def test_a_step_in_once_and_forget_takes_it_along(shop):
    with shop.app.app_context():
        for failing in (True, False):
            try:
                with shop.idempotence.once("mail", 7):
                    assert shop.step("render") == {"render": 1}
                    if failing:
                        raise LookupError
            except LookupError:
                continue
        shop.idempotence.forget("mail", 7)
        with shop.idempotence.once("mail", 7) as mail:
            assert mail.first
            assert shop.step("render") == {"render": 2}
        with shop.idempotence.once("mail", 8):
            assert shop.step("render") == {"render": 3}
        shop.idempotence.forget("mail", 7)
        with shop.idempotence.once("mail", 8) as mail:
            assert not mail.first
    assert shop.runs == {"render": 3}


def test_rounds_of_a_loop_have_ids():
    shop = Shop()
    shop.app.post("/loop")(idempotent()(lambda: ([shop.step("mail", n) for n in (1, 2)], 503)))
    for _ in range(2):
        assert shop.send("/loop").json == [{"mail": 1}, {"mail": 2}]


class TestRefused:
    @pytest.mark.parametrize(
        ("decorate", "match"),
        [
            (lambda view: view, "needs an operation around it"),
            (idempotent(guarantee="at-most-once"), "is at-most-once or within= a session"),
        ],
    )
    def test_where_no_operation_can_run_again(self, decorate, match):
        shop = Shop(decorate=decorate)
        with pytest.raises(ConfigurationError, match=match):
            shop.client.post("/pay", headers=KEY)

    @pytest.mark.parametrize(
        ("hook", "headers"),
        [("before_request", KEY), ("before_request", {}), ("after_request", KEY)],
    )
    def test_before_and_after_the_view(self, hook, headers):
        shop = Shop()
        getattr(shop.app, hook)(lambda *_: shop.step("another"))
        with pytest.raises(ConfigurationError, match="needs an operation around it"):
            shop.client.post("/pay", headers=headers)


class TestUnguarded:
    def test_behind_the_guard_of_another_view_and_by_a_safe_method(self):
        shop = Shop()
        quote = idempotent()(lambda: shop.step("quote"))
        shop.app.add_url_rule("/other", "other", lambda: [quote()], methods=["POST"])
        shop.app.route("/quote", methods=["GET", "POST"])(quote)
        assert shop.send("/other", headers={}).json == [{"quote": 1}]
        assert [shop.client.get("/quote").json["quote"] for _ in range(2)] == [2, 3]

    def test_in_once_that_is_switched_off(self):
        shop = Shop(IDEMPOTENCE_ENABLED=False)
        with shop.app.app_context():
            for _ in range(2):
                with shop.idempotence.once("mail", 7):
                    shop.step("render")
        assert shop.runs == {"render": 2}


def test_a_step_that_another_attempt_holds_is_in_progress():
    shop, entered, go_on = Shop(), threading.Event(), threading.Event()

    def slow():
        with shop.idempotence.step("charge"):
            entered.set()
            assert go_on.wait(10)
        return "done"

    shop.app.post("/slow")(idempotent()(slow))
    thread = threading.Thread(target=shop.send, args=["/slow"])
    thread.start()
    assert entered.wait(10)
    [operation] = shop.store.scan("idempotence:2:key:")
    shop.store.remove(operation)  # as after the lease of a process that is frozen
    other = shop.send("/slow")
    assert (other.status_code, other.headers["Idempotence-Refusal"]) == (409, "key-in-progress")
    go_on.set()
    thread.join()


def test_a_step_of_an_operation_whose_claim_is_gone_does_not_run():
    shop = Shop()

    def view():
        shop.store.clear("idempotence:2:key:")
        return str(shop.step("charge"))

    shop.app.post("/late")(idempotent()(view))
    answer = shop.send("/late")
    assert (answer.status_code, answer.headers["Idempotence-Refusal"]) == (409, LeaseLost.slug)
    assert shop.runs == {}


class TestResult:
    def test_the_first_attempt_reads_it_as_later_ones_do(self):
        shop = Shop()
        seen = []

        def view():
            with shop.idempotence.step("list") as step:
                if step.first:
                    step.result = (1, {2: 3}, UUID(int=7), Decimal("9.90"))
                seen.append(step.result)
            return "", 503

        shop.app.post("/list")(idempotent()(view))
        for _ in range(2):
            shop.send("/list")
        assert seen == [[1, {"2": 3}, str(UUID(int=7)), "9.90"]] * 2

    @pytest.mark.parametrize("value", [{1, 2}, float("nan"), "x" * 2_000_000])
    def test_one_that_cannot_be_kept_leaves_the_step_unfinished(self, value):
        shop, runs = Shop(), []

        def view():
            with shop.idempotence.step("list") as step:
                runs.append(step.first)
                step.result = value if len(runs) == 1 else "mended"
            return step.result

        shop.app.post("/list")(idempotent()(view))
        assert shop.send("/list").status_code == 500
        assert shop.send("/list").text == "mended"
        assert runs == [True, True]

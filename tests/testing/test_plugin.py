"""The pytest plugin, in real runs of pytest on test files of its users."""

import re
import subprocess
import sys
import timeit

import pytest

from flask_idempotence import MemoryStore
from flask_idempotence.testing import empty_memory_stores

pytest_plugins = ["pytester"]

SHOP = """
from flask import Flask
from flask_idempotence import Idempotence, no_repeat_submit

def create_app(**settings):
    store = settings.pop("store", None)
    app = Flask("shop")
    app.config.update({"SECRET_KEY": "a secret for the tests", "TESTING": True, **settings})
    Idempotence(app, store=store)

    @app.post("/orders")
    @no_repeat_submit(60)
    def create_order():
        return "Ordered."

    return app
"""

APPS = {
    "module": "app = create_app()\n@pytest.fixture\ndef shop(): return app",
    "store of a module": (
        "store = MemoryStore()\n@pytest.fixture\ndef shop(): return create_app(store=store)"
    ),
    "made by the first test": (
        "made = []\n@pytest.fixture\n"
        "def shop():\n    made.append(made[0] if made else create_app())\n    return made[0]"
    ),
}
"""Applications that outlive a test, by where they are made."""

TESTS = """
def test_one(shop):
    assert shop.test_client().post("/orders").status_code == 200
    assert shop.test_client().post("/orders").status_code == 409

def test_two(shop):
    assert shop.test_client().post("/orders").status_code == {second}
"""


UNITTEST = """
import unittest
app = create_app()
class TestOrders(unittest.TestCase):
    def test_one(self):
        self.assertEqual(app.test_client().post("/orders").status_code, 200)
    test_two = test_one
"""

OWN_FIXTURES = """
app = create_app()
@pytest.fixture
def ordered(): app.test_client().post("/orders")
def test_one(ordered): assert app.test_client().post("/orders").status_code == 409
def test_two(ordered): assert app.test_client().post("/orders").status_code == 409
"""

ON_A_SERVER = """
@pytest.fixture
def shop():
    app = create_app(IDEMPOTENCE_STORAGE_URI={uri!r})
    app.test_cli_runner().invoke(args=["idempotence", "init-db"])
    return app
"""

FIXTURES = """
from flask_idempotence.testing import assert_ran_once, token_for

app = create_app()

def test_names(idempotence_token, idempotence_ran_once):
    assert (idempotence_token, idempotence_ran_once) == (token_for, assert_ran_once)

def test_a_minute_passes(idempotence_clock, idempotence_ran_once):
    client = app.test_client()
    with idempotence_ran_once(app, "create_order"):
        client.post("/orders")
        client.post("/orders")
    idempotence_clock.advance(60)
    with idempotence_ran_once(app, "create_order"):
        client.post("/orders")
"""

WITHIN = """
from pathlib import Path
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session
from flask_idempotence.testing import temporary_database

@pytest.fixture
def shop(idempotence_database):
    app = create_app(IDEMPOTENCE_STORAGE_URI=idempotence_database)
    engine = create_engine(idempotence_database)
    session = Session(engine)
    session.execute(text("CREATE TABLE payments (id INTEGER PRIMARY KEY)"))
    session.commit()

    @app.post("/payments/<int:status>")
    @idempotent(required=True, within=session)
    def pay(status):
        session.execute(text("INSERT INTO payments DEFAULT VALUES"))
        return "Paid.", status

    app.count = lambda: session.execute(text("SELECT COUNT(*) FROM payments")).scalar_one()
    yield app
    session.close()
    engine.dispose()

@pytest.mark.parametrize(("status", "payments"), [(201, 1), (404, 0)])
def test_a_view_within_its_session(shop, status, payments):
    client = shop.test_client()
    key = {"Idempotency-Key": "a-key-of-the-tests"}
    answers = [client.post(f"/payments/{status}", headers=key) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [status, status]
    assert answers[1].headers["Idempotent-Replayed"] == "true"
    assert shop.count() == payments

def test_each_has_a_file_that_goes_with_it(idempotence_database):
    with temporary_database() as url:
        assert url != idempotence_database
        file = Path(url.removeprefix("sqlite:///"))
        assert file.read_bytes().startswith(b"SQLite")
    assert not file.parent.exists()
"""

IN_A_HURRY = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest"]


def results_of(folder, files, *options):
    header = "import pytest\nfrom shop import create_app\nfrom flask_idempotence import *\n"
    (folder / "shop.py").write_text(SHOP, encoding="utf-8")
    for name, content in files.items():
        (folder / f"test_{name.replace(' ', '_')}.py").write_text(header + content, "utf-8")
    command = [sys.executable, "-W", "error", "-m", "pytest", "-W", "error", "--strict-markers"]
    done = subprocess.run(
        [*command, *IN_A_HURRY, "-rA", "--color", "no", "--rootdir", str(folder), *options],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"(?m)^(PASSED|FAILED|ERROR) test_(\w+)\.py::", done.stdout)
    assert found, done.stdout + done.stderr
    return {
        name: [result for result, file in found if file == name.replace(" ", "_")]
        for name in files
    }


PASSED = ["PASSED", "PASSED"]


@pytest.fixture(scope="class")
def results(tmp_path_factory, redis_server):
    folder = tmp_path_factory.mktemp("shop")
    with redis_server.client() as client:
        client.flushall()
    uris = {"redis": redis_server.url, "sqlite": f"sqlite:///{folder}/shop.db"}
    files = {name: app + TESTS.format(second=200) for name, app in APPS.items()}
    for name, uri in uris.items():
        files[name] = ON_A_SERVER.format(uri=uri) + TESTS.format(second=409)
    files |= {"methods": UNITTEST, "own fixtures": OWN_FIXTURES, "fixtures": FIXTURES}
    files["within"] = WITHIN
    return results_of(folder, files)


class TestMemoryStores:
    @pytest.mark.parametrize("made", [*APPS, "methods"])
    def test_are_empty_when_a_test_begins(self, results, made):
        assert results[made] == PASSED

    def test_keep_the_keys_that_the_fixtures_of_a_test_have_stored(self, results):
        assert results["own fixtures"] == PASSED

    @pytest.mark.parametrize("server", ["redis", "sqlite"])
    def test_on_servers_are_not_touched(self, results, server):
        assert results[server] == PASSED

    def test_and_the_clock_are_at_hand_as_fixtures(self, results):
        assert results["fixtures"] == PASSED

    def test_a_database_for_a_session_and_its_store_is_at_hand_as_a_fixture(self, results):
        assert results["within"] == ["PASSED"] * 3

    @pytest.mark.lifecycle
    def test_are_empty_in_the_workers_of_xdist_but_for_tests_with_the_mark(self, tmp_path):
        emptied = APPS["module"] + TESTS.format(second=200)
        kept = APPS["module"] + TESTS.format(second=409)
        kept = kept.replace("def test_two", "@pytest.mark.idempotence_keep\ndef test_two")
        files = {"emptied": emptied, "kept": kept}
        found = results_of(tmp_path, files, "-n", "2", "--dist", "loadfile")
        assert found == {"emptied": PASSED, "kept": PASSED}

    @pytest.mark.lifecycle
    def test_are_kept_where_the_plugin_is_switched_off(self, tmp_path):
        files = {"kept": APPS["module"] + TESTS.format(second=409)}
        found = results_of(tmp_path, files, "-p", "no:flask_idempotence")
        assert found == {"kept": PASSED}

    @pytest.mark.timed
    def test_of_a_thousand_old_applications_take_no_time(self):
        stores = [MemoryStore() for _ in range(1000)]
        empty_memory_stores()
        seconds = min(timeit.repeat(empty_memory_stores, number=1, repeat=20))
        assert len(stores) == 1000
        assert seconds < 0.005  # 0.2 ms on a free machine


class TestStartOfPytest:
    def test_imports_neither_the_package_nor_flask(self, pytester):
        pytester.makepyfile("""
import sys

def test_what_pytest_has_imported(request):
    assert request.config.pluginmanager.has_plugin("flask_idempotence")
    assert sys.modules.keys() & {"flask_idempotence", "flask", "redis", "marshmallow"} == set()
""")
        done = pytester.runpytest_subprocess(*IN_A_HURRY)
        done.assert_outcomes(passed=1)

    def test_does_not_warn_where_the_package_was_imported_before(self, pytester):
        pytester.makepyfile("def test_nothing(): pass")
        program = (
            "import sys, flask_idempotence, pytest; "
            f"sys.exit(pytest.main(['-q', '-W', 'error', *{IN_A_HURRY}]))"
        )
        done = pytester.run(sys.executable, "-c", program)
        assert done.ret == 0
        done.stdout.fnmatch_lines(["1 passed*"])
        assert "PYTEST_DONT_REWRITE" in sys.modules["flask_idempotence"].__doc__


def test_the_functions_serve_unittest_without_pytest(pytester):
    pytester.makepyfile(shop=SHOP)
    pytester.makepyfile(
        test_orders="""
import sys
import unittest
from flask_idempotence.testing import (
    assert_ran_once, control_time, empty_memory_stores, token_for
)
from shop import create_app

app = create_app()

class TestOrders(unittest.TestCase):
    def setUp(self):
        empty_memory_stores()
        self.clock = self.enterContext(control_time())
        self.client = app.test_client()

    def test_one(self):
        with assert_ran_once(app, "create_order"):
            self.client.post("/orders")
            self.client.post("/orders")
        self.clock.advance(60)
        self.assertEqual(self.client.post("/orders").status_code, 200)

    test_two = test_one

    def test_without_pytest(self):
        self.assertTrue(token_for(self.client))
        self.assertNotIn("pytest", sys.modules)
"""
    )
    done = pytester.run(sys.executable, "-W", "error", "-m", "unittest", "test_orders")
    assert done.ret == 0, done.stderr.str()

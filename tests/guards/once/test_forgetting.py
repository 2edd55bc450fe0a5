"""`forget`: a finished operation is given free, by code or by command; a running one is not."""

import json
from uuid import UUID

import pytest
from helpers.every_store import EVERY_STORE, storage_settings
from helpers.once_operations import OnceApp, elsewhere
from helpers.servers.faults import Proxy
from helpers.servers.processes import all_at_once

from flask_idempotence import ConfigurationError, MemoryStore, Running, Store, StoreUnavailable
from flask_idempotence.testing import FakeClock

ID = UUID("8e03978e-40d5-43e8-bc93-6894a57f9324")


@pytest.fixture(params=EVERY_STORE)
def once_app(request):
    return OnceApp(**storage_settings(request.param, request))


def forget(once_app, id_="1", scope="invoice"):
    with once_app.app.app_context():
        return once_app.idempotence.forget(scope, id_)


def release(once_app, *arguments, **more):
    arguments = ["idempotence", "release", "--scope", "invoice", *arguments]
    return once_app.app.test_cli_runner().invoke(args=arguments, **more)


def test_what_is_done_may_be_done_again_once(once_app):
    assert [once_app.word(), once_app.word()] == ["first", "done"]
    assert [forget(once_app), forget(once_app)] == [True, False]
    assert [once_app.word(), once_app.word()] == ["first", "done"]


@pytest.mark.parametrize("where", [elsewhere, lambda call, *arguments: call(*arguments)])
def test_what_runs_stays_its_owners(once_app, where):
    with once_app.app.app_context(), once_app.once() as job:
        with pytest.raises(Running) as met:
            where(forget, once_app)
        assert 25 < met.value.remaining <= 30
        assert once_app.word() == "running"
        job.result = "paid"
    assert once_app.work() == (False, "paid")


def test_of_many_who_forget_at_once_one_is_told_that_it_did(once_app):
    for round_ in range(5):
        once_app.work(round_)
        told = all_at_once([lambda id_=round_: forget(once_app, id_)] * 8)
        assert sorted(told) == [False] * 7 + [True]


def test_a_record_that_has_become_a_claim_meanwhile_is_left_alone():
    class Changing(MemoryStore):
        def peek(self, key):
            found = super().peek(key)
            if found is not None and found.kind == "record":
                self.remove(key)  # another has forgotten it, and begun again
                self.claim(key, b"r" * 16, bytes(16), 30, 0)
            return found

    once_app = OnceApp(store=Changing(clock=(clock := FakeClock())), clock=clock)
    once_app.word()
    with pytest.raises(Running):
        forget(once_app)
    assert once_app.word() == "running"


def test_a_store_that_cannot_remove_says_so():
    memory = MemoryStore()
    methods = {name: getattr(memory, name) for name in Store.__abstractmethods__}
    plain = type(
        "PlainStore", (Store,), {name: staticmethod(call) for name, call in methods.items()}
    )()
    once_app = OnceApp(store=plain)
    once_app.work()
    with pytest.raises(ConfigurationError, match=r"PlainStore is a Store, but not an Inspectable"):
        forget(once_app)


@pytest.mark.parametrize("policy", ["reject", "allow"])
def test_a_store_that_is_away_is_an_error_whatever_the_policy(fresh_redis, policy):
    with Proxy(fresh_redis) as proxy:
        once_app = OnceApp(IDEMPOTENCE_STORAGE_URI=proxy.url, IDEMPOTENCE_ON_STORE_ERROR=policy)
        once_app.work()
        proxy.refuse()
        with pytest.raises(StoreUnavailable):
            forget(once_app)
        proxy.accept()
        assert forget(once_app)


# The command

on_memory = pytest.mark.parametrize("once_app", ["memory"], indirect=True)


IDS = {
    "a text": ("m-1", ["--id", "m-1"]),
    "a text of digits": ("7", ["--id", "7"]),
    "a text as JSON": ("7", ["--id-json", '"7"']),
    "an integer": (7, ["--id-json", "7"]),
    "a UUID": (ID, ["--id-json", json.dumps({"uuid": str(ID)})]),
    "a tuple": ((7, "monday", (ID,)), ["--id-json", f'[7, "monday", [{{"uuid": "{ID.hex}"}}]]']),
}


@on_memory
@pytest.mark.parametrize(("id_", "named"), IDS.values(), ids=IDS)
def test_the_command_names_every_kind_of_id(once_app, id_, named):
    others = [other for other, _ in IDS.values() if other != id_]
    for each in {*others, id_}:
        once_app.word(each)
    done = release(once_app, *named, "--yes")
    assert (done.exit_code, done.stderr[-10:]) == (0, "Released.\n")
    assert once_app.word(id_) == "first"
    assert {once_app.word(other) for other in others} == {"done"}


@on_memory
def test_the_command_asks_before(once_app):
    once_app.word("secret")
    asked = release(once_app, "--id", "secret", input="n\n")
    assert (asked.exit_code, once_app.word("secret")) == (1, "done")
    assert "runs it a second time" in asked.stderr
    assert release(once_app, "--id", "secret", input="y\n").exit_code == 0
    assert once_app.word("secret") == "first"
    # A dash stands for an id that nobody on the machine should see.
    assert release(once_app, "--id", "-", "--yes", input="secret\n").exit_code == 0
    assert once_app.word("secret") == "first"


@on_memory
def test_the_command_leaves_a_running_one_to_its_owner(once_app):
    with once_app.app.app_context(), once_app.once():
        refused = release(once_app, "--id", "1", "--yes")
        assert refused.exit_code == 1
        assert "only its owner may end it" in refused.stderr
        assert once_app.word() == "running"


@on_memory
def test_the_command_says_where_there_is_nothing(once_app):
    once_app.word(7)
    missing = release(once_app, "--id", "7", "--yes")
    assert (missing.exit_code, once_app.word(7)) == (1, "done")
    assert "nothing to release" in missing.stderr


NO_IDS = [
    *([], ["--id", ""], ["--id", "1", "--id-json", "1"], ["--id", "1", "--key", "k"]),
    *(["--id", "1", "abcdef"], ["--id", "1", "--scope", "a b"]),
    *(["--id-json", text] for text in ("{", "true", "1.5", "[]", '{"uuid": 5}', '{"id": 5}')),
]


@pytest.mark.parametrize("named", NO_IDS)
def test_the_command_refuses_what_is_no_id_with_its_usage(named):
    refused = release(OnceApp(), *named, "--yes")
    assert refused.exit_code == 2
    assert "Usage:" in refused.stderr


@on_memory
def test_inspect_names_operations_too(once_app):
    once_app.word(7)
    runner = once_app.app.test_cli_runner()
    named = ["--scope", "invoice", "--id-json", "7"]
    shown = runner.invoke(args=["idempotence", "inspect", *named, "--json"])
    [entry] = json.loads(shown.stdout)
    assert (entry["mode"], entry["endpoint"], entry["holds"]) == ("once", "invoice", "record")

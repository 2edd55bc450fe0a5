"""Tenants and API clients: who is one caller, and who is two."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from flask import request
from helpers.applications.login_apps import CountingApp
from helpers.apps import make_app, verdict

from flask_idempotence import Idempotence, Running, idempotent

TENANTS = {"Bearer one": "acme", "Bearer other": "globex"}
ONE, OTHER = ({"headers": {"Authorization": sent}} for sent in TENANTS)


def clients_of(guard, **settings):
    """Return an application that names its callers by their API keys."""
    counter = CountingApp(guard, **settings)
    counter.idempotence.identity_loader(lambda: (TENANTS[request.headers["Authorization"]], 1))
    return counter


def in_session(counter):
    for tenant in ("acme", "globex"):
        client = counter.app.test_client()
        with client.session_transaction() as held:
            held["tenant_id"] = tenant
        yield {**ONE, "client": client}


HOSTS = [{"base_url": f"http://{host}.example"} for host in ("acme", "shop")]


@pytest.mark.parametrize("guard", ["key", "lock"])
class TestCallers:
    def test_users_of_one_api_key_are_one_unless_a_header_names_them(self, guard):
        for counter in (CountingApp(guard), clients_of(guard)):
            assert counter.takes_for_one(ONE, {**ONE, "address": "192.0.2.2"})
            for name in ("X-User-ID", "X-Tenant-ID"):
                users = [{"headers": {**ONE["headers"], name: user}} for user in "ab"]
                assert counter.tells_apart(*users)

    def test_the_tenant_in_the_session_does_not_count_with_a_loader(self, guard):
        without, loaded = CountingApp(guard), clients_of(guard)
        assert without.tells_apart(*in_session(without))
        assert loaded.takes_for_one(*in_session(loaded))

    def test_one_tenant_at_two_hosts_is_one_where_the_host_does_not_count(self, guard):
        assert clients_of(guard).tells_apart(*[ONE | host for host in HOSTS])
        counter = clients_of(guard, IDEMPOTENCE_IDENTITY_HOST=False)
        assert counter.takes_for_one(*[ONE | host for host in HOSTS])
        assert counter.verdicts(OTHER) == [200]


def test_one_key_for_two_tenants_in_the_path_is_refused_unless_the_loader_names_them():
    sent = [{"path": "/acme", **ONE}, {"path": "/globex", **ONE}]
    assert CountingApp("key", rule="/<tenant>").verdicts(*sent) == [200, "key-reused"]
    counter = CountingApp("key", rule="/<tenant>")
    counter.idempotence.identity_loader(lambda: (request.view_args["tenant"], 1))
    assert counter.verdicts(*sent) == [200, 200]


def test_locks_are_named_by_the_tenant_and_not_by_the_caller():
    idempotence = Idempotence()
    app = make_app(idempotence=idempotence)

    def enter(user, name):
        headers = {"Authorization": f"Bearer {user}"}
        with app.test_request_context("/", headers=headers), idempotence.lock(name):
            return user

    anns = app.test_request_context("/", headers={"Authorization": "Bearer ann"})
    with anns, idempotence.lock("acme 17"), ThreadPoolExecutor() as pool:
        assert pool.submit(enter, "bob", "globex 17").result() == "bob"
        with pytest.raises(Running):
            pool.submit(enter, "bob", "acme 17").result()


@pytest.mark.parametrize(("names_the_tenant", "runs"), [(False, 1), (True, 2)])
def test_where_nothing_is_compared_the_key_has_to_name_the_tenant(names_the_tenant, runs):
    idempotence = Idempotence()
    app, ran = make_app(idempotence=idempotence), []
    idempotence.identity_loader(lambda: "provider")

    def event():
        tenant = request.view_args["tenant"] if names_the_tenant else ""
        return f"{tenant}:{request.json['id']}"

    @app.post("/webhooks/<tenant>")
    @idempotent(key=event, compare=False)
    def view(tenant):
        ran.append(tenant)
        return "done"

    for tenant in ("acme", "globex"):
        app.test_client().post(f"/webhooks/{tenant}", json={"id": "evt_1"})
    assert len(ran) == runs


def test_operations_are_named_by_the_tenant_and_not_by_the_caller():
    idempotence = Idempotence()
    app = make_app(idempotence=idempotence)
    done = []
    for user, name in [("ann", 17), ("bob", 17), ("ann", ("acme", 17)), ("bob", ("globex", 17))]:
        headers = {"Authorization": f"Bearer {user}"}
        with (
            app.test_request_context("/", headers=headers),
            idempotence.once("invoice", name) as job,
        ):
            done.append(job.first)
    assert done == [True, False, True, True]


def test_applications_with_prefixes_of_their_own_share_a_server_and_nothing_else(redis_url):
    shops = [
        CountingApp("key", IDEMPOTENCE_STORAGE_URI=redis_url, IDEMPOTENCE_PREFIX=f"shop-{tenant}")
        for tenant in ("acme", "globex")
    ]
    assert [verdict(shop.send(**ONE)) for shop in shops * 2] == [200, 200, *["replay of 200"] * 2]
    purge = ["idempotence", "purge", "--all", "--yes"]
    assert shops[0].app.test_cli_runner().invoke(args=purge).exit_code == 0
    assert [verdict(shop.send(**ONE)) for shop in shops] == [200, "replay of 200"]

"""Application hosts whose clocks differ: what the store counts, and what a host decides."""

import contextlib
import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from cryptography.fernet import Fernet
from helpers.servers.processes import Gunicorn, environment

from flask_idempotence.stores import open_store

from .clock import wrong_clock

pytestmark = pytest.mark.partition

APART = [5, 3600, -3600]


class Host(Gunicorn):
    def post(self, path, **headers):
        headers["Host"] = "shop.test"  # on another port, keys are others
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self.ask(path, "POST", named)
        told = answer.headers.get("Idempotence-Refusal", answer.text)
        return answer.status, told, answer.headers


@pytest.fixture(params=APART)
def hosts(request, tmp_path, redis_url):
    with contextlib.ExitStack() as stack:

        def make(store=redis_url, **settings):
            both = []
            for clock in ({}, wrong_clock(tmp_path, request.param)):
                env = environment(store, **settings, **clock)
                host = Host("proofs.partitions.clock_app:app", workers=1, env=env)
                both.append(stack.enter_context(host))
            right, wrong = (float(host.ask("/time").text) for host in both)
            assert wrong - right == pytest.approx(request.param, abs=3)
            return both

        make.ahead = request.param
        yield make


def refusal(answer):
    assert answer[0] != 200, answer
    return answer[1]


def test_a_token_is_spent_once_on_either_host(hosts):
    both = hosts()
    for issuing, spending in (both, both[::-1]):
        token = issuing.post("/issue")[1]
        assert spending.post("/token", Idempotence_Token=token)[0] == 200
        for host in both:
            again = refusal(host.post("/token", Idempotence_Token=token))
            assert again in {"token-spent", "token-expired"}


def test_a_token_ends_with_its_lifetime_in_the_store(hosts):
    both = hosts(token_ttl=1)
    tokens = [host.post("/issue")[1] for host in both]
    time.sleep(1.2)
    for host in both:
        for token in tokens:
            refusal(host.post("/token", Idempotence_Token=token))


def test_a_token_that_was_put_back_runs_again_until_it_succeeds(hosts):
    """A host that is ahead by more than its lifetime does not put it back."""
    right, wrong = hosts()
    token = right.post("/issue")[1]
    assert wrong.post("/again", Idempotence_Token=token, Status="400")[1].startswith("ran")
    second = right.post("/again", Idempotence_Token=token)
    assert (second[0] == 200) == (hosts.ahead < 300)
    refusal(right.post("/again", Idempotence_Token=token))
    refusal(wrong.post("/again", Idempotence_Token=token))


def test_a_lock_and_its_retry_after_are_counted_by_the_store(hosts):
    right, wrong = hosts()
    assert right.post("/lock")[0] == 200
    for host in (right, wrong):
        status, slug, headers = host.post("/lock")
        assert (status, slug) == (409, "repeat-submit")
        assert 15 <= int(headers["Retry-After"]) <= 20


def test_a_key_runs_once_and_is_replayed_on_either_host(hosts):
    both = hosts()
    for number, (first, second) in enumerate((both, both[::-1])):
        key = f"key-{number}-of-these-hosts"
        with ThreadPoolExecutor() as pool:
            running = pool.submit(first.post, "/key", Idempotency_Key=key, Takes="1.5")
            time.sleep(1)
            status, slug, headers = second.post("/key", Idempotency_Key=key)
            assert (status, slug, headers["Retry-After"]) == (409, "key-in-progress", "1")
            ran = running.result()
        assert ran[0] == 200
        assert [host.post("/key", Idempotency_Key=key)[1] for host in both] == [ran[1]] * 2


def test_a_token_as_a_key_is_refused_by_a_host_that_is_ahead_by_its_ttl(hosts):
    """The limit of 30 seconds: such a token is good for as long as its response is remembered."""
    right, wrong = hosts()
    for path, ttl in (("/token-key", 86400), ("/short-token-key", 600)):
        token = right.post("/issue")[1]
        status, ran, _ = right.post(path, Idempotence_Token=token)
        assert status == 200
        expected = "token-expired" if hosts.ahead > ttl else ran
        assert wrong.post(path, Idempotence_Token=token)[1] == expected


def test_an_encrypted_record_is_not_replayed_by_a_host_that_is_ahead_by_its_ttl(hosts):
    right, wrong = hosts(key_encryption_keys=json.dumps([Fernet.generate_key().decode()]))
    for path, ttl in (("/key", 86400), ("/short", 600)):
        ran = right.post(path, Idempotency_Key="a-key-of-these-hosts")[1]
        expected = "response-not-stored" if hosts.ahead > ttl else ran
        assert wrong.post(path, Idempotency_Key="a-key-of-these-hosts")[1] == expected


@pytest.mark.parametrize("hosts", [3600], indirect=True)
@pytest.mark.parametrize("database", ["postgres", "mariadb", "sqlite"])
def test_a_lease_is_counted_by_the_database_and_in_sqlite_by_the_process(
    hosts, database, tmp_path, request
):
    is_file = database == "sqlite"
    url = f"sqlite:///{tmp_path}/app.db"
    url = url if is_file else request.getfixturevalue(database).new_database()
    store = open_store(url, {})
    store.create_table()
    store.close()
    right, wrong = hosts(url)
    key = {"Idempotency_Key": "a-key-of-these-hosts"}
    with ThreadPoolExecutor() as pool:
        running = pool.submit(right.post, "/key", **key, Takes="2")
        time.sleep(1)
        status, told, _ = wrong.post("/key", **key)
        ran = running.result()[1]
    if is_file:  # the lease of a minute has passed for the second process
        assert status == 200
        assert told != ran
    else:
        assert (status, told) == (409, "key-in-progress")
        assert wrong.post("/key", **key)[1] == ran

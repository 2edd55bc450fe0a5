"""Application hosts whose clocks differ: what the store counts, and what a host decides."""

import time

import pytest
from cryptography.fernet import Fernet

from flask_idempotence.stores import open_store

from .clock_host import ClockHost

pytestmark = pytest.mark.partition

APART = [5, 3600, -3600]


@pytest.fixture(params=APART)
def hosts(request, tmp_path, redis_url):
    """Make the settings of two hosts; the second one's clock is ahead by the parameter."""
    made = []

    def make(**settings):
        settings = {"IDEMPOTENCE_STORAGE_URI": redis_url, **settings}
        for name, ahead in (("right", 0), ("wrong", request.param)):
            made.append(ClockHost(tmp_path / name, ahead, **settings))
        assert made[1].now() - made[0].now() == pytest.approx(request.param, abs=3)
        return made

    make.ahead = request.param
    yield make
    for host in made:
        host.close()


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
    both = hosts(IDEMPOTENCE_TOKEN_TTL=1)
    tokens = [host.post("/issue")[1] for host in both]
    time.sleep(1.2)
    for host in both:
        for token in tokens:
            refusal(host.post("/token", Idempotence_Token=token))


def test_a_token_that_was_put_back_runs_once_more_at_most(hosts):
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
        first.begin("/key", Idempotency_Key=key, Takes="1.5")
        time.sleep(1)
        status, slug, headers = second.post("/key", Idempotency_Key=key)
        assert (status, slug, headers["Retry-After"]) == (409, "key-in-progress", "1")
        ran = first.end()
        assert ran[0] == 200
        assert [host.post("/key", Idempotency_Key=key)[1] for host in both] == [ran[1]] * 2


def test_a_token_as_a_key_is_refused_by_a_host_that_is_ahead_by_its_ttl(hosts):
    """The limit of 30 seconds: such a token is good for as long as its response is remembered."""
    right, wrong = hosts()
    token = right.post("/issue")[1]
    ran = right.post("/token-key", Idempotence_Token=token)
    assert ran[0] == 200
    assert wrong.post("/token-key", Idempotence_Token=token)[1] == ran[1]
    short = right.post("/issue")[1]
    ran = right.post("/short-token-key", Idempotence_Token=short)[1]
    expected = "token-expired" if hosts.ahead > 600 else ran
    assert wrong.post("/short-token-key", Idempotence_Token=short)[1] == expected


def test_an_encrypted_record_is_not_replayed_by_a_host_that_is_ahead_by_its_ttl(hosts):
    right, wrong = hosts(IDEMPOTENCE_KEY_ENCRYPTION_KEYS=[Fernet.generate_key().decode()])
    for path, ttl in (("/key", 86400), ("/short", 600)):
        ran = right.post(path, Idempotency_Key="a-key-of-these-hosts")[1]
        expected = "response-not-stored" if hosts.ahead > ttl else ran
        assert wrong.post(path, Idempotency_Key="a-key-of-these-hosts")[1] == expected


@pytest.mark.parametrize("hosts", [3600], indirect=True)
@pytest.mark.parametrize("database", ["postgres", "mariadb", "sqlite"])
def test_a_lease_is_counted_by_the_database_and_in_sqlite_by_the_process(
    hosts, database, tmp_path, request
):
    if database == "sqlite":
        url = f"sqlite:///{tmp_path}/app.db"
    else:
        url = request.getfixturevalue(database).new_database()
    store = open_store(url, {})
    store.create_table()
    right, wrong = hosts(IDEMPOTENCE_STORAGE_URI=url)
    key = "a-key-of-these-hosts"
    right.begin("/key", Idempotency_Key=key, Takes="2")
    time.sleep(1)
    status, told, _ = wrong.post("/key", Idempotency_Key=key)
    ran = right.end()[1]
    if database == "sqlite":  # the lease of a minute has passed for the second process
        assert status == 200
        assert told != ran
    else:
        assert (status, told) == (409, "key-in-progress")
        assert wrong.post("/key", Idempotency_Key=key)[1] == ran
    store.close()

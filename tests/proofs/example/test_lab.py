"""The example's lab: what it counts is exact, in every mode and on every server."""

import psutil
import pytest
from helpers.servers.example import HTML, ask, run_lab
from helpers.servers.processes import until

pytestmark = pytest.mark.servers

REQUESTS = 30
COUNTS = {
    "none": {"ran": REQUESTS, "claimed": 0, "rejected": 0, "replayed": 0},
    "lock": {"ran": 1, "claimed": 1, "rejected": REQUESTS - 1, "replayed": 0},
    "token": {"ran": 1, "claimed": 1, "rejected": REQUESTS - 1, "replayed": 0, "token_spent": 1},
    "key": {"ran": 1, "claimed": 1, "replayed": REQUESTS - 1},
    "wait": {"ran": 1, "claimed": 1, "rejected": 0, "replayed": REQUESTS - 1},
}


def only(counts, names):
    return {name: counts.get(name, 0) for name in names}


@pytest.mark.parametrize("mode", COUNTS)
def test_the_counts_are_exact(server, mode):
    told = run_lab(server.url, mode, REQUESTS)
    expected = COUNTS[mode]
    assert only(told["counts"], expected) == expected
    assert told["effects"] == expected["ran"] == told["counts"]["began"]
    placed = f"{REQUESTS} orders: {REQUESTS - 1} too many." if mode == "none" else "one order."
    assert told["verdict"] == f"{REQUESTS} requests placed {placed}"
    assert told["outcome"] == ("wrong" if mode == "none" else "right")
    assert told["counts"]["answered"] == REQUESTS
    # Every client that gets Retry-After retries.
    retries = told["counts"].get("will retry", 0)
    assert told["counts"]["sent"] == told["counts"]["arrived"] == REQUESTS + retries
    if mode == "key":
        assert told["counts"].get("rejected", 0) == retries
    assert sorted({lane for _, lane, *_ in told["events"]}) == list(range(1, REQUESTS + 1))


@pytest.mark.parametrize(
    ("mode", "failure"), [("key", "status"), ("wait", "exception"), ("wait", "success")]
)
def test_the_first_fails_and_another_one_does_what_is_to_be_done(server, mode, failure):
    told = run_lab(server.url, mode, 10, delay=50, failure=failure)
    expected = {"claimed": 2, "failed": 1, "released": 1, "ran": 1, "completed": 1, "replayed": 8}
    assert only(told["counts"], expected) == expected
    assert told["effects"] == 1


def test_what_always_fails_has_no_effect_and_gives_its_claim_up(server):
    told = run_lab(server.url, "lock", 5, failure="status", only_first=False)
    counts = told["counts"]
    assert told["effects"] == 0
    assert (told["verdict"], told["outcome"]) == ("5 requests placed no order.", "neutral")
    assert counts["failed"] == counts["claimed"] >= 1
    assert counts["claimed"] + counts.get("rejected", 0) == 5


def test_the_requests_are_sent_at_once(server):
    events = run_lab(server.url, "wait", 100)["events"]
    sent, answered = (
        [at for *_, what, _, at in events if what == name] for name in ("sent", "answered")
    )
    assert len(sent) == len(answered) == 100
    assert max(sent) < min(answered)


def test_the_page_shows_a_run_without_scripts(server):
    form = {"mode": "lock", "requests": 3, "delay": 0}
    started = ask(server.url + "/lab/runs", form, headers=HTML)
    assert started.status == 303
    again = ask(server.url + "/lab/runs", form, headers=HTML)
    assert (again.status, "This run has just been started." in again.text) == (409, True)
    page = ask(server.url + started.headers["Location"], headers=HTML)
    assert "3 requests placed " in page.text


@pytest.mark.parametrize(
    "wrong",
    [{"mode": "?"}, {"requests": "0"}, {"requests": "201"}, {"requests": "²"}, {"delay": "3001"},
     {"delay": "-1"}, {"delay": "1e3"}, {"failure": "?"}, {"requests": ""}],
)  # fmt: skip
def test_a_run_that_cannot_be_is_refused(flask_run, wrong):
    form = {"mode": "lock", "requests": "1", "delay": "0", **wrong}
    assert ask(flask_run.url + "/lab/runs", form).status == 400


def test_the_burst_goes_to_this_server_whatever_the_request_calls_it(flask_run):
    form = b"mode=lock&requests=2&delay=0"
    started = ask(flask_run.url + "/lab/runs", data=form, headers={"Host": "192.0.2.1:9"})
    assert started.status == 202
    run_lab(flask_run.url, "none", 1)  # by then, the other one is over, too
    told = ask(flask_run.url + started.json["events"]).json
    assert told["counts"]["answered"] == 2


def test_a_server_that_hides_its_socket_has_no_lab_and_answers_like_a_gateway(client):
    form = {"mode": "lock", "requests": 1, "delay": 0}
    assert client.post("/lab/runs", data=form).status_code == 501
    assert client.get("/lab").status_code == 200
    headers = {"Idempotency-Key": "k", "X-Example-Operation": "o", "X-Example-Lose": "1"}
    answers = [client.post("/api/payments", json={"amount": 5}, headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [503, 201]
    assert answers[0].headers["Retry-After"] == "1"
    assert client.get("/api/payments").json["count"] == 1


def test_no_program_stays_behind(flask_run):
    run_lab(flask_run.url, "none", 1)
    # A program that has ended and that nobody waited for would be listed.
    assert until(lambda: psutil.Process(flask_run.pid).children() == [])

"""What stands in the store, as the gateway reads it: exactly as Flask does, or not at all."""

import json
import re
import time

import pytest
from helpers.repository import ROOT
from helpers.servers.nginx_gateway import ACL, JSON, make_world
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.exceptions import NoPermissionError

pytestmark = pytest.mark.gateway


class TestWhatIsStored:
    @pytest.fixture
    def done(self, gateway):
        key, before = gateway.new_key(), set(gateway.redis.client().keys())
        gateway.pay(key)
        [name] = set(gateway.redis.client().keys()) - before
        yield key, name, gateway.redis.client().get(name)
        gateway.redis.client().delete(name)

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param(lambda value: value[:33] + b"\x02" + value[34:], id="unknown"),
            pytest.param(lambda value: value[:33] + b"\x03" + value[34:], id="encrypted"),
            pytest.param(lambda value: value[:-1] + bytes([value[-1] ^ 1]), id="damaged"),
            *(
                pytest.param(lambda value, n=n: value[:n], id=f"cut at {n}")
                for n in (34, 33, 20, 0)
            ),
            pytest.param(lambda value: b"X" + value[1:], id="odd"),
        ],
    )
    def test_what_it_does_not_know_goes_on_to_flask(self, gateway, done, change):
        key, name, value = done
        gateway.redis.client().set(name, change(value), keepttl=True)
        with gateway.reaching_flask(2):
            answer = gateway.pay(key)
            assert answer.told == gateway.pay(key, port=gateway.nginx.plain).told
        assert answer.status in (409, 422)

    def test_a_value_of_another_type_goes_on_to_flask(self, gateway, done):
        key, name, _ = done
        gateway.redis.client().delete(name)
        gateway.redis.client().rpush(name, "no text")
        with gateway.reaching_flask(1):
            assert gateway.pay(key).status == 503

    @pytest.mark.parametrize(
        ("left", "reached", "told"),
        [(59_000, 1, "outcome-unknown"), (90_000, 0, "key-in-progress")],
    )
    def test_a_claim_whose_lease_has_ended_goes_on_to_flask(
        self, gateway, done, left, reached, told
    ):
        key, name, value = done
        gateway.redis.client().set(name, b"C" + value[1:33] + b"60000", px=left)
        with gateway.reaching_flask(reached):
            answer = gateway.pay(key)
        assert answer.slug == told

    @pytest.mark.parametrize("accept", ["text/html", "text/html,*/*;q=0.8", "text/*", "x/y;q=0.1"])
    def test_who_may_want_a_page_is_told_by_flask_that_it_runs(self, gateway, accept):
        key = gateway.new_key()
        with gateway.running(key), gateway.reaching_flask(1):
            assert gateway.pay(key, Accept=accept).status == 409

    @pytest.mark.parametrize("accept", ["*/*", "application/json, text/plain, */*"])
    def test_who_wants_none_is_told_by_the_gateway(self, gateway, accept):
        key = gateway.new_key()
        with gateway.running(key):
            with gateway.reaching_flask(0):
                repeat = gateway.pay(key, Accept=accept)
            assert repeat.told == gateway.pay(key, Accept=accept, port=gateway.nginx.plain).told


HEADERS = st.lists(
    st.tuples(
        st.sampled_from(
            ["Location", "ETag", "Cache-Control", "Vary", "Link", "X-Number", "Refresh", "Server",
             "Last-Modified", "Retry-After", "X-Accel-Redirect", "X_Odd", "Expires", "x-lower"]
        ),
        st.sampled_from(["/there", "1", '"x"', "http://other/x", "Mon, 01 Jan 2024 00:00:00 GMT"]),
    ),
    max_size=4,
)  # fmt: skip
TYPES = st.sampled_from(
    [JSON, "text/html; charset=utf-8", "application/problem+json", "image/x", None]
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    status=st.sampled_from([200, 201, 202, 203, 204, 205, 206, 299, 302, 303, 400, 404, 422, 499]),
    content_type=TYPES,
    headers=HEADERS,
    body=st.one_of(st.text(max_size=30), st.integers(450, 600).map(lambda size: "x" * size)),
)
def test_whatever_flask_would_replay_comes_out_the_same(
    gateway, status, content_type, headers, body
):
    told = {"status": status, "headers": headers, "body": "" if status in (204, 205) else body}
    if content_type:
        told["headers"] = [("Content-Type", content_type), *headers]
    sent, key = json.dumps(told).encode(), gateway.new_key()
    assert not gateway.pay(key, path="/echo", body=sent).replayed
    by_flask = gateway.pay(key, path="/echo", body=sent, port=gateway.nginx.plain)
    assert gateway.pay(key, path="/echo", body=sent).told == by_flask.told


def test_it_replays_most_of_what_there_is_to_replay(gateway):
    for status in (200, 201, 202, 400, 404, 422):
        told = {"status": status, "body": "done", "headers": [
            ("Content-Type", "text/plain; charset=utf-8"), ("Location", "/orders/1"),
            ("Link", "</a>; rel=next"), ("Link", "</b>; rel=last"), ("X-Total", "7"),
        ]}  # fmt: skip
        sent, key = json.dumps(told).encode(), gateway.new_key()
        gateway.pay(key, path="/echo", body=sent)
        by_flask = gateway.pay(key, path="/echo", body=sent, port=gateway.nginx.plain)
        with gateway.reaching_flask(0):
            assert gateway.pay(key, path="/echo", body=sent).told == by_flask.told


class TestWithoutTheStore:
    def test_everything_passes_while_redis_is_away(self, tmp_path):
        with make_world(tmp_path) as world:
            assert world.pay("1").status == 201
            world.redis.stop()
            with world.reaching_flask(3):
                assert [world.pay("1").status for _ in range(3)] == [503, 503, 503]
            world.redis.start()
            world.redis.client().execute_command("ACL", "SETUSER", *ACL)
            time.sleep(1.1)  # it leaves a store that failed alone for a second
            assert world.pay("2").status == 201
            with world.reaching_flask(0):
                assert world.pay("2").replayed

    @pytest.mark.timed
    def test_a_silent_store_costs_a_tenth_of_a_second_once(self, tmp_path):
        # Flask has a store of its own here, so that only the gateway has to do with the silence.
        with make_world(tmp_path, IDEMPOTENCE_STORAGE_URI="memory://") as world:
            world.redis.pause()
            took = []
            for _ in range(5):
                before = time.monotonic()
                assert world.pay("1").status == 201
                took.append(time.monotonic() - before)
            assert took[0] >= 0.1
            assert sum(took) < 0.4
            world.redis.resume()

    def test_a_user_whom_the_server_refuses_changes_no_answer(self, tmp_path):
        with make_world(tmp_path) as world:
            world.redis.client().execute_command("ACL", "DELUSER", "gateway")
            with world.reaching_flask(2):
                assert [world.pay("1").status for _ in range(2)] == [201, 201]

    def test_its_user_needs_no_more_than_it_may_and_may_read_keys_only(self, tmp_path):
        with make_world(tmp_path) as world:
            behind = world.redis.client()
            behind.acl_log_reset()
            assert [world.pay("1").replayed for _ in range(2)] == [False, True]
            assert behind.acl_log() == []
            [key] = behind.keys("idempotence:2:key:*")
            behind.set("idempotence:2:lock:a", "b")
            with world.redis.client(username="gateway", password="let me look") as gateway:
                assert gateway.get(key)
                for forbidden in (
                    ("GET", "idempotence:2:lock:a"),
                    ("SET", key, "b"),
                    ("DEL", key),
                    ("KEYS", "*"),
                    ("CONFIG", "GET", "*"),
                    ("EVAL", "return 1", "0"),
                ):
                    with pytest.raises(NoPermissionError):
                        gateway.execute_command(*forbidden)

    def test_a_route_that_compares_in_its_own_way_is_left_to_flask(self, tmp_path):
        with make_world(tmp_path, GATEWAY_COMPARE="nothing") as world:
            body = b'{"body": "done", "status": 200, "headers": []}'
            with world.reaching_flask(3):
                answers = [world.pay("1", path="/echo", body=body) for _ in range(3)]
            assert [answer.replayed for answer in answers] == [False, True, True]

    def test_where_the_keys_are_switched_off_everything_passes(self, tmp_path):
        with make_world(tmp_path, FLASK_IDEMPOTENCE_KEY_ENABLED="false") as world:
            with world.reaching_flask(3):
                assert [world.pay("1").replayed for _ in range(3)] == [False] * 3
            assert set(world.nginx.verdicts) == {"passed"}


def test_the_user_of_the_page_is_the_one_of_these_tests():
    page = (ROOT / "docs" / "reports" / "gateway.md").read_text(encoding="utf-8")
    told = re.search(r"(?m)^ACL SETUSER (.*)$", page)[1]
    assert told.split(" ") == [">password" if word[0] == ">" else word for word in ACL]

"""Changes that the tests must find, by the test that does."""

FILES = (
    "engine/engine.py",
    "engine/guard.py",
    "engine/keeper.py",
    "engine/settling.py",
    "guards/key.py",
    "guards/lock.py",
    "guards/once.py",
    "stores/memory.py",
    "stores/redis/deployment.py",
    "stores/redis/store.py",
)

FOUND_BY = {
    "guards/key/test_nesting.py"
    "::TestKeysOfTheirOwn::test_an_inner_one_is_replayed_within_another_operation": [
        (
            "Engine.enter_claimed",
            "if within is None:  # first, for it may be refused",
        ),
        ("Engine._held", "if claim.key == entering.key or not claim.is_granted or claim.settled:"),
    ],
    "guards/key/test_waiting.py"
    "::test_a_repeat_waits_for_what_comes_of_the_first[a death, at-most-once]": [
        ("Engine.claim", "if not (isinstance(found, Running) or found.matches):"),
    ],
    "guards/key/test_store_failures.py"
    "::TestClaim::test_whose_answer_is_lost_for_good_is_taken_back[/once]": [
        (
            "Engine._take_back",
            "until = self.now() + max(operation.lease, self.config.lease)"
            " - operation.hold_after_crash",
        ),
    ],
    "engine/test_view_exits.py"
    "::test_a_killed_view_whose_end_is_caught_further_out_holds_as_well[restoring token]": [
        (
            "Claim.begin_settlement",
            "return self._process == os.getpid() or self._settling.acquire(blocking=False)",
        ),
    ],
    "engine/test_renewals.py"
    "::TestHalfAnAnswer::test_each_lease_goes_by_what_its_own_server_says": [
        ("Claim.extend", "self.renew_at = at + lease * 3"),
        (
            "Keeper._renew_due",
            "due = [claim for claim in self._held if claim.renew_at <= now - claim.lease / 12]",
        ),
        (
            "Keeper._renew",
            "held = [claim for claim in due if now < claim.granted_at - self._config.max_hold]",
        ),
        ("Keeper._renew", "if outcome is not Outcome.OK:"),
        ("Keeper._renew", "elif claim.settled:"),
    ],
    "guards/lock/test_lock.py"
    "::TestSlowViews::test_a_lease_that_was_lost_is_known_to_the_view_and_its_answer_goes_out": [
        ("Claim.lose", "is_missed = now >= self.renew_at + self.lease / 2 / 3"),
    ],
    "guards/key/test_settling.py::test_an_exception_without_a_handler[success-True]": [
        ("Claim.judge", "self.facts &= {verdict}"),
    ],
    "engine/test_keeper.py::test_a_settlement_waits_for_the_renewal_under_way": [
        ("Keeper.unwatch", "if claim in self._renewing:"),
    ],
    "guards/named_lock/test_named_lock.py"
    "::test_its_lease_is_its_own_or_the_setting_and_at_most_the_longest_hold[lease2-100]": [
        ("Keeper.ensure_held", "if outcomes[0] is not Outcome.STALE:"),
    ],
    "engine/test_keeper.py::test_a_few_that_are_refused_are_tried_twice_a_second": [
        (
            "Keeper._retry_due",
            "if failures == MAX_FAILURES and not self._retry_at <= self._clock() < stop_at:",
        ),
    ],
    "guards/key/test_streams.py::test_a_large_body_of_a_transient_status_runs_again": [
        ("Settling.record", "claim.judge(None)", "judge(Verdict.FAILED)"),
    ],
    "guards/key/test_streams.py::test_a_stream_that_is_killed_is_killed": [
        ("Settling.send", "if claim.settled and claim.context == id(context):"),
        (
            "tear_down_request",
            "if not (claim.settled and claim.streaming or claim.context != id(context)):",
        ),
        ("Settling.settle", "if claim.begin_settlement():"),
    ],
    "guards/once/test_failures.py::test_until_it_is_finished_the_claim_lives_on": [
        ("Settling.close", 'elif settlement.call == "put_token":'),
        ("Settling._retry", "until = claim.granted_at - self._config.max_hold"),
    ],
    "guards/lock/test_lock.py::TestLeases::test_a_lease_is_counted_from_before_it_was_asked_for": [
        ("Settling.call_store", "if outcome is not Outcome.STALE:"),
    ],
    "guards/key/test_store_failures.py"
    "::TestStaleOwner::test_that_completes_changes_nothing_of_its_successors[memory]": [
        ("Settling._acknowledge", "elif outcome is not Outcome.STALE:"),
    ],
    "guards/key/test_streams.py::test_a_stream_that_breaks_off_is_a_failure[at-most-once]": [
        ("KeyGuard.answer", "if found.matches:"),
        (
            "KeyGuard.settle",
            "is_run = verdict is not Verdict.FAILED  # and released neither by hand nor unrun",
        ),
    ],
    "guards/lock/test_lock.py"
    "::TestLeases::test_a_lease_that_was_made_sure_of_is_renewed_again_at_its_own_third": [
        ("LockGuard.settle", 'return Settlement("renew", None)', ", self.interval)"),
    ],
    "guards/once/test_results.py::test_a_result_comes_back_as_it_was[memory-half a character]": [
        ("Once._end", "if problem is not None or error is None:"),
    ],
    "stores/test_stores.py::TestAStoreThatCannotBeListed::test_a_record_is_remembered": [
        ("MemoryStore.claim", "return Done(known != fingerprint, more, expires - now)"),
        ("MemoryStore.complete", 'if expires > now and (holder == owner or kind == "token"):'),
    ],
    "stores/test_stores.py::TestMemoryStore::test_a_kept_claim_says_crashed_when_its_lease_ends": [
        ("MemoryStore.claim", 'if kind == "claim" and holder == owner:'),
        (
            "MemoryStore.claim",
            "return Running(matches, left, holder) if (left > 0) or True else Crashed(matches)",
        ),
    ],
    "stores/test_stores.py::TestAStoreThatCannotBeListed::test_a_released_key_is_free": [
        (
            "MemoryStore.release",
            'if (kind, holder) != ("claim", owner) or expires > self.clock():',
        ),
    ],
    "stores/redis/test_link.py::TestStores::test_a_claim_is_no_token_and_stays[memory-]": [
        (
            "MemoryStore.take_token",
            'if kind != "token" and expires <= self.clock():',
        ),
    ],
    "stores/redis/test_failure_matrix.py::test_answer_lost_after_the_effect[spend]": [
        ("Deployment.run", "send = partial(self.send, key=calls[0][0], quorum=quorum)"),
    ],
    "stores/test_stores.py::TestRedisStore::test_the_owner_is_granted_its_own_claim_again[ours]": [
        (
            "_claim_outcome",
            "if is_claim and found[1:17] == owner and isinstance(left, int) and left >= 0:",
        ),
    ],
}
"""By test: function, the line as mutmut makes it, a part of the old one where two are alike."""

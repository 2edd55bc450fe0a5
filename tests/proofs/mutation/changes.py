"""Changes that the tests must find, each with a test that does."""

from typing import NamedTuple


class Change(NamedTuple):
    file: str
    function: str
    before: str
    after: str
    test: str

    @property
    def diff(self) -> tuple[str, str, str]:
        """By which it is found among those that mutmut makes."""
        return self.function, self.before, self.after


ENGINE, GUARDS, STORES = (f"flask_idempotence/{each}" for each in ("engine", "guards", "stores"))

CHANGES = [
    Change(
        f"{ENGINE}/engine.py",
        "Engine._enter",
        "if guard.within is not None and transaction is None:  # first, for it may be refused",
        "if guard.within is not None or transaction is None:  # first, for it may be refused",
        "tests/guards/key/test_nesting.py"
        "::TestKeysOfTheirOwn::test_an_inner_one_is_replayed_within_another_operation",
    ),
    Change(
        f"{ENGINE}/engine.py",
        "Engine._held",
        "if claim.slot.key != key or claim.settled:",
        "if claim.slot.key != key and claim.settled:",
        "tests/guards/key/test_nesting.py"
        "::TestKeysOfTheirOwn::test_an_inner_one_is_replayed_within_another_operation",
    ),
    Change(
        f"{ENGINE}/engine.py",
        "Engine.claim",
        "if not (isinstance(found, Running) and found.matches):",
        "if not (isinstance(found, Running) or found.matches):",
        "tests/guards/key/test_waiting.py"
        "::test_a_repeat_is_told_that_the_first_one_died_where_nothing_runs_twice",
    ),
    Change(
        f"{ENGINE}/engine.py",
        "Engine._take_back",
        "until = self.now() + max(question.lease, self.config.lease) + question.keep",
        "until = self.now() + max(question.lease, self.config.lease) - question.keep",
        "tests/guards/key/test_store_failures.py"
        "::TestClaim::test_whose_answer_is_lost_for_good_is_taken_back[/once]",
    ),
    Change(
        f"{ENGINE}/engine.py",
        "Engine._spend",
        "if outcome is TokenOutcome.TAKEN or outcome is TokenOutcome.TAKEN_AGAIN:",
        "if outcome is TokenOutcome.TAKEN or outcome is not TokenOutcome.TAKEN_AGAIN:",
        "tests/engine/test_view_exits.py"
        "::test_a_killed_view_whose_end_is_caught_further_out_holds_as_well[restoring token]",
    ),
    Change(
        f"{ENGINE}/claim.py",
        "Owners.draw",
        "if not 0 <= now - self._drawn_at < self._GOOD_FOR:",
        "if 0 <= now - self._drawn_at < self._GOOD_FOR:",
        "tests/engine/test_owners.py::test_none_is_drawn_from_before_a_pause",
    ),
    Change(
        f"{ENGINE}/claim.py",
        "Owners.draw",
        "return owners[0]",
        "return owners[1]",
        "tests/engine/test_owners.py::test_threads_never_draw_one_twice",
    ),
    Change(
        f"{ENGINE}/claim.py",
        "Lease.__init__",
        "self.renew_at = at + length / 3",
        "self.renew_at = at + length * 3",
        "tests/engine/test_renewals.py"
        "::TestHalfAnAnswer::test_each_lease_goes_by_what_its_own_server_says",
    ),
    Change(
        f"{ENGINE}/claim.py",
        "Lease.is_due_soon",
        "return self.renew_at <= now + self.length / 12",
        "return self.renew_at <= now - self.length / 12",
        "tests/engine/test_renewals.py"
        "::TestHalfAnAnswer::test_each_lease_goes_by_what_its_own_server_says",
    ),
    Change(
        f"{ENGINE}/claim.py",
        "Lease.is_missed",
        "return now >= self.renew_at + self.length * 2 / 3",
        "return now >= self.renew_at + self.length / 2 / 3",
        "tests/guards/lock/test_lock.py"
        "::TestSlowViews::test_a_lease_that_was_lost_is_known_to_the_view_and_its_answer_goes_out",
    ),
    Change(
        f"{ENGINE}/claim.py",
        "Claim.judge",
        "self.result = max(self.result, verdict)",
        "self.result = None",
        "tests/guards/key/test_settling.py::test_an_exception_without_a_handler[success-True]",
    ),
    Change(
        f"{ENGINE}/claim.py",
        "Claim.begin_settlement",
        "return self._process == os.getpid() and self._settling.acquire(blocking=False)",
        "return self._process == os.getpid() or self._settling.acquire(blocking=False)",
        "tests/engine/test_view_exits.py"
        "::test_a_killed_view_whose_end_is_caught_further_out_holds_as_well[restoring token]",
    ),
    Change(
        f"{ENGINE}/keeper.py",
        "Keeper.unwatch",
        "if claim not in self._renewing:",
        "if claim in self._renewing:",
        "tests/engine/test_keeper.py::test_a_settlement_waits_for_the_renewal_under_way",
    ),
    Change(
        f"{ENGINE}/keeper.py",
        "Keeper._renew",
        "kept = [claim for claim in due if now < claim.granted_at + self._config.max_hold]",
        "kept = [claim for claim in due if now < claim.granted_at - self._config.max_hold]",
        "tests/engine/test_renewals.py"
        "::TestHalfAnAnswer::test_each_lease_goes_by_what_its_own_server_says",
    ),
    Change(
        f"{ENGINE}/keeper.py",
        "Keeper._renew",
        "if outcome is Outcome.OK:",
        "if outcome is not Outcome.OK:",
        "tests/engine/test_renewals.py"
        "::TestHalfAnAnswer::test_each_lease_goes_by_what_its_own_server_says",
    ),
    Change(
        f"{ENGINE}/keeper.py",
        "Keeper._renew",
        "elif not claim.settled:",
        "elif claim.settled:",
        "tests/engine/test_renewals.py"
        "::TestHalfAnAnswer::test_each_lease_goes_by_what_its_own_server_says",
    ),
    Change(
        f"{ENGINE}/keeper.py",
        "Keeper.ensure_held",
        "if outcomes[0] is Outcome.STALE:",
        "if outcomes[0] is not Outcome.STALE:",
        "tests/guards/named_lock/test_named_lock.py"
        "::test_its_lease_is_its_own_or_the_setting_and_at_most_the_longest_hold[lease2-100]",
    ),
    Change(
        f"{ENGINE}/keeper.py",
        "Keeper._retry_due",
        "if failures == MAX_FAILURES or not self._retry_at <= self._clock() < stop_at:",
        "if failures == MAX_FAILURES and not self._retry_at <= self._clock() < stop_at:",
        "tests/engine/test_keeper.py::test_a_few_that_are_refused_are_tried_twice_a_second",
    ),
    Change(
        f"{ENGINE}/settling.py",
        "Settling.record",
        "claim.judge(Verdict.FAILED)",
        "claim.judge(None)",
        "tests/guards/key/test_streams.py::test_a_large_body_of_a_transient_status_runs_again",
    ),
    Change(
        f"{ENGINE}/settling.py",
        "Settling.finish",
        "if not claim.settled and claim.context == context:",
        "if claim.settled and claim.context == context:",
        "tests/guards/key/test_streams.py::test_a_stream_that_is_killed_is_killed",
    ),
    Change(
        f"{ENGINE}/settling.py",
        "Settling.tear_down",
        "if claim.settled or claim.streaming or claim.context != context:",
        "if claim.settled and claim.streaming or claim.context != context:",
        "tests/guards/key/test_streams.py::test_a_stream_that_is_killed_is_killed",
    ),
    Change(
        f"{ENGINE}/settling.py",
        "Settling.settle",
        "if not claim.begin_settlement():",
        "if claim.begin_settlement():",
        "tests/guards/key/test_streams.py::test_a_stream_that_is_killed_is_killed",
    ),
    Change(
        f"{ENGINE}/settling.py",
        "Settling._carry_out",
        'elif settlement.call != "put_token":',
        'elif settlement.call == "put_token":',
        "tests/guards/once/test_failures.py::test_until_it_is_finished_the_claim_lives_on",
    ),
    Change(
        f"{ENGINE}/settling.py",
        "Settling.send",
        "if outcome is Outcome.STALE:",
        "if outcome is not Outcome.STALE:",
        "tests/guards/test_rules_of_all_modes.py"
        "::TestLeases::test_a_lease_is_counted_from_before_it_was_asked_for",
    ),
    Change(
        f"{ENGINE}/settling.py",
        "Settling._retry",
        "until = claim.granted_at + self._config.max_hold",
        "until = claim.granted_at - self._config.max_hold",
        "tests/guards/once/test_failures.py::test_until_it_is_finished_the_claim_lives_on",
    ),
    Change(
        f"{ENGINE}/settling.py",
        "Settling._acknowledge",
        "elif outcome is Outcome.STALE:",
        "elif outcome is not Outcome.STALE:",
        "tests/guards/key/test_store_failures.py"
        "::TestStaleOwner::test_that_completes_changes_nothing_of_its_successors[memory]",
    ),
    Change(
        f"{GUARDS}/key.py",
        "KeyGuard.answer",
        'if not getattr(found, "matches", True):',
        'if getattr(found, "matches", True):',
        "tests/guards/key/test_streams.py"
        "::test_a_stream_that_breaks_off_is_a_failure[at-most-once]",
    ),
    Change(
        f"{GUARDS}/key.py",
        "KeyGuard.settle",
        "is_run = ending.verdict is Verdict.FAILED  # and released neither by hand nor unrun",
        "is_run = ending.verdict is not Verdict.FAILED  # and released neither by hand nor unrun",
        "tests/guards/key/test_streams.py"
        "::test_a_stream_that_breaks_off_is_a_failure[at-most-once]",
    ),
    Change(
        f"{GUARDS}/lock.py",
        "LockGuard.settle",
        'return Settlement("renew", self.interval)',
        'return Settlement("renew", None)',
        "tests/guards/test_rules_of_all_modes.py"
        "::TestLeases::test_a_lease_that_was_made_sure_of_is_renewed_again_at_its_own_third",
    ),
    Change(
        f"{GUARDS}/once.py",
        "Once._end",
        "if problem is not None and error is None:",
        "if problem is not None or error is None:",
        "tests/guards/once/test_results.py"
        "::test_a_result_comes_back_as_it_was[memory-half a character]",
    ),
    Change(
        f"{STORES}/memory.py",
        "MemoryStore.claim",
        "matches = held[_FINGERPRINT] == fingerprint",
        "matches = held[_FINGERPRINT] != fingerprint",
        "tests/stores/test_stores.py::TestAStoreThatCannotBeListed::test_a_record_is_remembered",
    ),
    Change(
        f"{STORES}/memory.py",
        "MemoryStore.claim",
        "if held[_OWNER] != owner:",
        "if held[_OWNER] == owner:",
        "tests/stores/test_stores.py"
        "::TestMemoryStore::test_a_kept_claim_says_crashed_when_its_lease_ends",
    ),
    Change(
        f"{STORES}/memory.py",
        "MemoryStore.claim",
        "Running(matches, left, held[_OWNER]) if left > 0 else Crashed(matches)",
        "Running(matches, left, held[_OWNER]) if (left > 0) or True else Crashed(matches)",
        "tests/stores/test_stores.py"
        "::TestMemoryStore::test_a_kept_claim_says_crashed_when_its_lease_ends",
    ),
    Change(
        f"{STORES}/memory.py",
        "MemoryStore.complete",
        'and (held[_OWNER] != owner or held[_KIND] == "token")',
        'and (held[_OWNER] == owner or held[_KIND] == "token")',
        "tests/stores/test_stores.py::TestAStoreThatCannotBeListed::test_a_record_is_remembered",
    ),
    Change(
        f"{STORES}/memory.py",
        "MemoryStore.release",
        "if not _is_claim_of(owner, held) and held[_EXPIRES] > self.clock():",
        "if not _is_claim_of(owner, held) or held[_EXPIRES] > self.clock():",
        "tests/stores/test_stores.py::TestAStoreThatCannotBeListed::test_a_released_key_is_free",
    ),
    Change(
        f"{STORES}/memory.py",
        "MemoryStore.take_token",
        'if held is None or held[_KIND] != "token" or held[_EXPIRES] <= self.clock():',
        'if held is None or held[_KIND] != "token" and held[_EXPIRES] <= self.clock():',
        "tests/stores/redis/test_link.py::TestStores::test_a_claim_is_no_token_and_stays[memory-]",
    ),
    Change(
        f"{STORES}/redis/deployment.py",
        "Deployment.run",
        "send = partial(self.send, key=calls[0][0], repeatable=script.repeatable, quorum=quorum)",
        "send = partial(self.send, key=calls[0][0], quorum=quorum)",
        "tests/stores/redis/test_failure_matrix.py::test_answer_lost_after_the_effect[spend]",
    ),
    Change(
        f"{STORES}/redis/store.py",
        "_claim_outcome",
        "if is_claim and found[1:17] != owner and isinstance(left, int) and left >= 0:",
        "if is_claim and found[1:17] == owner and isinstance(left, int) and left >= 0:",
        "tests/stores/test_stores.py"
        "::TestRedisStore::test_the_owner_is_granted_its_own_claim_again[resp2-decoded]",
    ),
]

"""The check that `proofs/chaos/test_checks.py` does not have."""

from proofs.chaos.history import Attempt, Fault, Run

from .checks import Split, no_request_exceeds_its_deadlines


def is_too_slow(seconds, *, in_view=0.0, stalled=None):
    """Whether a request hangs that took so long, with its view, on a host whose pid is 1."""
    told = {"body": {"run": "a"}, "replayed": not in_view, "slug": "", "pid": 1}
    attempt = Attempt("first", "once/1/1", 6, 6 + seconds, 201, **told)
    times = {"arrived": 6, "begun": 6, "effect": 6, "ended": 6 + in_view}
    run = Run("a", "once/1/1", 1, attempt.id, **times, end="success")
    stalls = [Fault("standstill", 6.05, 5.9 + seconds, stalled)] if stalled else []
    history = Split([attempt], [run] if in_view else [], stalls=stalls)
    return bool([*no_request_exceeds_its_deadlines(history)])


def test_a_request_that_hangs_is_found_but_neither_a_slow_view_nor_a_pause_is_hanging():
    assert is_too_slow(2.6)
    assert not is_too_slow(2.4)
    assert not is_too_slow(8, in_view=7.9)
    assert not is_too_slow(10, stalled=1)
    assert is_too_slow(10, stalled=2)

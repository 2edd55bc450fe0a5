"""Round trips, counted at the server."""

from contextlib import contextmanager


@contextmanager
def packets(behind):
    """Count the packets that a server reads in this block; yields a function that returns them.

    Commands that are sent at once arrive in one packet, if they are short.
    """
    before = _reads(behind)
    after = []
    yield lambda: after[0] - before - 1  # the command that looks is one, too
    after.append(_reads(behind))


def _reads(behind):
    return behind.info("stats")["total_reads_processed"]

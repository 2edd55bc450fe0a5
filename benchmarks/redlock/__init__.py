"""RedLock, written by hand, beside this library on real servers that fail: grants and latency."""

"""Long runs: what grows in a process, in its store, and in the time of a request."""

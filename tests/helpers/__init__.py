"""Applications, callers and real servers that the tests share."""

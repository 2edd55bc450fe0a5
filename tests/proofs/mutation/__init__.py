"""Mutants of the package that mutmut makes, and the tests that find them."""

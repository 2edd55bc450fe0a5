"""Test suites of other projects, with the extension on every application that they make."""

"""The tests on other versions of servers, libraries and Python, one cell of a table each."""

"""Writing and reading responses: refusals, headers, and records of a response.

The engine, the guards and the client's table of refusals rely on it; it imports the settings and
the errors.
"""

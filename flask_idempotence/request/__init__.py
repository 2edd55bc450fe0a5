"""Reading a request: its sender, its fingerprint, its body, its key.

Nothing here claims or stores anything. The engine, the guards and the web pages import it; it
imports the settings, `response` and the errors.
"""

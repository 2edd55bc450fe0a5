"""The settings table and how it is read, the toggles, and the user callbacks.

Read once, by `init_app`; only the toggles are read at each request. Imports the errors alone;
every wing may import it.
"""

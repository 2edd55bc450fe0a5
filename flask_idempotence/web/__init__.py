"""The browser's side: the token route, the script for browsers, and the template functions.

Only the face imports it.
"""

"""The pages' side: the token route, the script for browsers, and the template functions.

Only the face imports it.
"""

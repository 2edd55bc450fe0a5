"""The modes: lock, token, key and once, each with its rules and its decorator.

Lives here: the rules of each mode, the wrapping of views, whole-app mode, and the checks of an
application's guards. Only the face imports it; it imports the engine and everything below.
"""

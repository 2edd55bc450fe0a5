"""What is proven against the world: real servers, browsers, networks and crashes.

A folder is a subject, and most of its tests run only where its mark is asked for.
"""

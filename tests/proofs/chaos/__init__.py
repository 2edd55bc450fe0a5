"""Chaos: an application under load while its workers and its store fail, and what came of it.

``application`` runs under Gunicorn and writes a ``journal`` outside Redis. ``load`` are the
clients, ``faults`` what is done to the servers, ``scenario`` brings them together and makes a
``history`` of it, which ``checks`` look through and ``report`` counts.
"""

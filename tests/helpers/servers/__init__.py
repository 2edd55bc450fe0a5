"""Real servers on loopback, each a process of its own."""

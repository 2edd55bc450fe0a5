"""Connections to Redis: commands sent within one deadline.

clients     a URI, or the application's client, becomes a deployment
deployment  sends commands to the right servers: attempts, redirections, batches
sentinel    the primary that sentinels name
cluster     the primaries of a cluster
node        one server: its idle connections and its circuit breaker
wire        the bytes of a round trip, and its deadline
factory     makes connections: handshake and tls come before the first command
replies     the codes of error replies
"""

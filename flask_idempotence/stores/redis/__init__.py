"""The store on Redis or Valkey.

store       the contract, in terms of outcomes
lua         the scripts, called by hash
inspection  keys and servers, as the commands show them; messages for `flask idempotence watch`
connection  sends commands: to one server, behind sentinels or in a cluster
"""

from .store import RedisStore

__all__ = ["RedisStore"]

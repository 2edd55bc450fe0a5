"""The store on Redis or Valkey.

store       the contract, in terms of outcomes
scripts     the Lua scripts, called by hash
inspection  looking at keys and servers, for tools
connection  one deadline a call, on a server, behind sentinels or in a cluster
"""

from .store import RedisStore

__all__ = ["RedisStore"]

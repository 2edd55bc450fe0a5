"""Applications, callers and real servers that the tests share."""

from pathlib import Path

ROOT = Path(__file__).parents[2]

"""Callers that send requests as clients and providers do."""

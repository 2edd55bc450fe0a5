"""The engine: claim, keep, settle. The same for every mode.

Lives here: the interface of guards, the claim and its lease, every way out of a view, the keeper
that renews leases, the retry queue, the failure policy around store calls. Guards and the face
import it; it imports `exactly_once`, `request`, `response`, the stores and the settings.
"""

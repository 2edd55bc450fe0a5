"""The described application that `tests/proofs/fuzzing/test_fuzzing.py` starts."""

import os

from helpers.applications.smorest_app import Shop

app = Shop(IDEMPOTENCE_STORAGE_URI=os.environ["STORE"]).app

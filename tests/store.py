"""The tests' own image store: what the user of this host keeps in the usual one must not matter to them, nor they to
it.

Importing this sets DOPPEL_STORE, for the tests and for the programs that they start. `make test-images` fills the
store.
"""

import os

os.environ["DOPPEL_STORE"] = os.environ.get("DOPPEL_TEST_STORE") or "/var/lib/doppel-tests"

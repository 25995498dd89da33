"""The same hung payment on this product and on agent frameworks: ``make compare``, explained in docs/compare.md.

``python -m bench.compare [--only PEER …] [--kind KIND …] [--json]``. Every cell, one peer with one kind of payment, is
a process of its own (`cell`), ended and killed by the command. `payment` is the tool, `execution` what it does to its
ledger, `script` the model; `catalogue` says how each peer is bounded, `peers` holds one file a peer and nothing of what
is measured; `ledger` says what the ledger means.
"""

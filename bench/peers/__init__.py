"""What a user would take instead, on the same work: ``make bench-peers``.

``python -m bench.peers [--quick] [--only WORKLOAD …] [--json FILE]``. Each side, one peer in one round, is a process of
its own (`_side`), so that no pool meets another's threads; rounds are in an order of chance, ratios within a round.
`_adapters` has one class a peer; `_hang` is the work. Figures are no tests: nothing here fails for being slow.
"""

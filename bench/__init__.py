"""Figures of one run, beside the floors that kernel and Python set in the same run: ``make bench``.

``python -m bench [--quick] [--only NAME …] [--json FILE]``. One file a workload; what several share is underscored;
`floors` holds the programs without a supervisor that the product is compared with; `tools` what the workers run.
Figures are no tests: a target that is not reached is printed and does not fail. Survivors and broken workloads do.
"""

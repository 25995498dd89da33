"""Trust suites: the product against mutated bytes, lost processes and hostile tools, in numbers. For `make trust`.

Not collected by pytest: a suite counts, and "0 of N" with its bound is what it proves. One file a suite: `registry`.
"""

"""Machines and policy: no I/O, no clock, no randomness. Inputs and ``now_ns`` come in, effects come out as values."""

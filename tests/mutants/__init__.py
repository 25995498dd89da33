"""Weakened builds: each removes one defence from a copy of the product, and the suite that holds it must turn red."""

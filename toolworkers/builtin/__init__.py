"""The tools every daemon serves, one a file."""

"""What a run is for, as something that can be compared: whoever holds the hash sees that the goal is still the same."""

from __future__ import annotations

import hashlib


def goal_hash(goal: str) -> str:
    """Hex SHA-256 of a goal's text."""
    return hashlib.sha256(goal.encode(errors="replace")).hexdigest()

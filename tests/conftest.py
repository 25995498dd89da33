"""Hypothesis without a clock: on a loaded machine an example takes as long as it takes, and that proves nothing."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("no clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no clock")

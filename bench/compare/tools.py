"""The kinds of payment as tools of this product. Loaded in its workers."""

from __future__ import annotations

from functools import partial

from bench.compare import payment
from bench.compare.execution import PLACE
from deadlined import tool

_payment = partial(tool, approval="never", timeout_ms=round(payment.TIMEOUT_S * 1e3), env=[PLACE])

pay_thread = _payment(name="pay_thread")(payment.thread)
pay_child = _payment(name="pay_child")(payment.child)
pay_deaf = _payment(name="pay_deaf")(payment.deaf)
pay_locked = _payment(name="pay_locked")(payment.locked)

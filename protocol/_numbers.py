"""Numbers as messages carry them: held to 64 bits, as JSON could carry more and an answer could then not be written."""

from __future__ import annotations

from typing import Annotated

import msgspec

_I64 = (1 << 63) - 1
RequestId = Annotated[int, msgspec.Meta(ge=0, le=_I64)]
"""A client's number for a request, free again once its last answer was sent."""
Count = Annotated[int, msgspec.Meta(ge=0, le=_I64)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1, le=_I64)]

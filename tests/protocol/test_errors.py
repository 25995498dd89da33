"""The type of an error says whose fault it is."""

from __future__ import annotations

import pytest

from protocol import _errors as errors


def test_both_faults_on_a_link_are_protocol_errors_and_neither_is_the_other() -> None:
    assert issubclass(errors.LocalProtocolError, errors.ProtocolError)
    assert issubclass(errors.RemoteProtocolError, errors.ProtocolError)
    assert not issubclass(errors.LocalProtocolError, errors.RemoteProtocolError)
    assert not issubclass(errors.RemoteProtocolError, errors.LocalProtocolError)


@pytest.mark.parametrize("kind", [errors.InvalidArguments, errors.QuantityError])
def test_what_a_person_typed_wrong_is_a_value_error_and_no_fault_on_a_link(kind: type[Exception]) -> None:
    assert issubclass(kind, ValueError)
    assert not issubclass(kind, errors.ProtocolError)

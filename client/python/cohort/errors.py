"""The exceptions of the library: one class for each gRPC status code."""

import enum
from typing import ClassVar, Dict, Optional, Tuple, Type

from cohort import _core


class StatusCode(enum.IntEnum):
    """The codes of errors, with the names and the numbers of gRPC."""
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class Error(RuntimeError):
    """The base class of all errors of the library; a RuntimeError, as the errors of PyTorch are.

    Attributes:
      code: the code of gRPC: code.name is such as "ABORTED", and code.value its number.
      message: what failed, and why, in one or a few sentences.
      missing: the ranks for which a wait ended in vain, in ascending order.
      culprit: the rank that caused the error, such as one that was lost; None if none is known.
      culprit_member: its member name; None if none is known.
      cause: the kind of the cause, such as "connection_lost"; None if none is known.
      group: the group's name; None if the error does not come from the coordinator.
      generation: the group's generation when the coordinator reported the error, or None.
      operation: the operation that failed, as the coordinator names it, or None.
    """
    code: ClassVar[StatusCode] = StatusCode.UNKNOWN

    def __init__(self, message: str = '', *, missing: Tuple[int, ...] = (),
                 culprit: Optional[int] = None, culprit_member: Optional[str] = None,
                 cause: Optional[str] = None, group: Optional[str] = None,
                 generation: Optional[int] = None, operation: Optional[str] = None):
        super().__init__(message)
        self.message = message
        self.missing = missing
        self.culprit = culprit
        self.culprit_member = culprit_member
        self.cause = cause
        self.group = group
        self.generation = generation
        self.operation = operation


class Cancelled(Error):
    """The call was cancelled: by `close`, by `cancel`, or by another member."""
    code = StatusCode.CANCELLED


class Unknown(Error):
    """An error without a more exact code."""
    code = StatusCode.UNKNOWN


class InvalidArgument(Error, ValueError):
    """An argument does not fit, or ranks called different collectives. The group stays usable."""
    code = StatusCode.INVALID_ARGUMENT


class DeadlineExceeded(Error, TimeoutError):
    """The timeout ended. `missing` lists the ranks that did not come, where they are known."""
    code = StatusCode.DEADLINE_EXCEEDED


class NotFound(Error, LookupError):
    """There is no such group, member or key."""
    code = StatusCode.NOT_FOUND


class AlreadyExists(Error):
    """A live member holds the rank already."""
    code = StatusCode.ALREADY_EXISTS


class PermissionDenied(Error, PermissionError):
    """The caller may not do this."""
    code = StatusCode.PERMISSION_DENIED


class ResourceExhausted(Error):
    """A limit was reached; the message names it and its value."""
    code = StatusCode.RESOURCE_EXHAUSTED


class FailedPrecondition(Error):
    """The members disagree (both sides are named), or this object was closed."""
    code = StatusCode.FAILED_PRECONDITION


class Aborted(Error):
    """The generation ended: a member was lost or replaced, or gave up. Call rejoin."""
    code = StatusCode.ABORTED


class OutOfRange(Error):
    """The coordinator no longer keeps the changes after the revision asked for, or has restarted. Read
    the present state, and watch from its revision: see `Watch`."""
    code = StatusCode.OUT_OF_RANGE


class Unimplemented(Error, NotImplementedError):
    """The other side does not offer this."""
    code = StatusCode.UNIMPLEMENTED


class Internal(Error):
    """A fault of the library."""
    code = StatusCode.INTERNAL


class Unavailable(Error, ConnectionError):
    """The coordinator was away for the whole timeout, or is draining."""
    code = StatusCode.UNAVAILABLE


class DataLoss(Error):
    """Objects expired before they were read, or tensors arrived with wrong checksums."""
    code = StatusCode.DATA_LOSS


class Unauthenticated(Error):
    """The caller's identity is not known."""
    code = StatusCode.UNAUTHENTICATED


_CLASSES: Dict[int, Type[Error]] = {each.code: each for each in Error.__subclasses__()}


def _make(code: int, message: str, details: dict) -> Error:
    return _CLASSES.get(code, Unknown)(message, **details)


_core.set_error_factory(_make)

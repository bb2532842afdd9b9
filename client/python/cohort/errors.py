"""The exceptions of the library: one class for each gRPC status code."""

from typing import Optional, Tuple

from cohort import _core


class Error(RuntimeError):
    """The base class of all errors of the library; a RuntimeError, as the errors of PyTorch are.

    Attributes:
      message: what failed, and why, in one or a few sentences.
      missing: the ranks for which a wait ended in vain, in ascending order.
      culprit: the rank that caused the error, such as one that was lost; None if none is known.
      culprit_member: its member name; None if none is known.
      cause: the kind of the cause, such as "connection_lost"; None if none is known.
      group: the group's name; None if the error does not come from the coordinator.
      generation: the group's generation when the coordinator reported the error, or None.
      operation: the operation that failed, as the coordinator names it, or None.
    """

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


class Unknown(Error):
    """An error without a more exact code."""


class InvalidArgument(Error, ValueError):
    """An argument does not fit, or ranks called different collectives. The group stays usable."""


class DeadlineExceeded(Error, TimeoutError):
    """The timeout ended. `missing` lists the ranks that did not come, where they are known."""


class NotFound(Error, LookupError):
    """There is no such group, member or key."""


class AlreadyExists(Error):
    """A live member holds the rank already."""


class PermissionDenied(Error, PermissionError):
    """The caller may not do this."""


class ResourceExhausted(Error):
    """A limit was reached; the message names it and its value."""


class FailedPrecondition(Error):
    """The members disagree (both sides are named), or this object was closed."""


class Aborted(Error):
    """The generation ended: a member was lost or replaced, or gave up. Call rejoin."""


class OutOfRange(Error):
    """The coordinator no longer keeps the changes after the revision asked for, or has restarted. Read
    the present state, and watch from its revision: see `Watch`."""


class Unimplemented(Error, NotImplementedError):
    """The other side does not offer this."""


class Internal(Error):
    """A fault of the library."""


class Unavailable(Error, ConnectionError):
    """The coordinator was away for the whole timeout, or is draining."""


class DataLoss(Error):
    """Objects expired before they were read, or tensors arrived with wrong checksums."""


class Unauthenticated(Error):
    """The caller's identity is not known."""


# By the number of the status code.
_CLASSES = {
    1: Cancelled, 2: Unknown, 3: InvalidArgument, 4: DeadlineExceeded, 5: NotFound,
    6: AlreadyExists, 7: PermissionDenied, 8: ResourceExhausted, 9: FailedPrecondition, 10: Aborted,
    11: OutOfRange, 12: Unimplemented, 13: Internal, 14: Unavailable, 15: DataLoss,
    16: Unauthenticated,
}


def _make(code: int, message: str, details: dict) -> Error:
    return _CLASSES.get(code, Unknown)(message, **details)


_core.set_error_factory(_make)

"""Timeouts, as all methods take them."""

import datetime
from typing import Optional, Union, overload

# Seconds or a timedelta; float("inf") is no limit.
Duration = Union[float, datetime.timedelta]
# None stands for the timeout of the object.
Timeout = Optional[Duration]


@overload
def seconds(timeout: Timeout) -> Optional[float]: ...
@overload
def seconds(timeout: Timeout, default: float) -> float: ...


def seconds(timeout: Timeout, default: Optional[float] = None) -> Optional[float]:
    """Returns the timeout in seconds, or `default` if it is None. The extension module refuses what
    is no timeout."""
    if timeout is None:
        return default
    return timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else timeout

"""Timeouts, as all methods take them."""

import datetime
from typing import Optional, Union

# Seconds or a timedelta; float("inf") is no limit. None stands for the timeout of the object.
Timeout = Union[float, datetime.timedelta, None]


def seconds(timeout: Timeout, default: Optional[float] = None) -> Optional[float]:
    """Returns the timeout in seconds, or `default` if it is None. The extension module refuses what is
    no timeout."""
    if timeout is None:
        return default
    return timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else timeout

"""The way of messages from one rank to one other: a group of Cohort with two ranks."""

from typing import Any, Callable

import torch

import cohort

_SENDER, _RECEIVER = 0, 1
_HEADER = 2  # numbers: the tag, and the bytes


class Channel:
    """Messages from one rank to one other, in order. One thread sends or receives at a time."""

    def __init__(self, name: str, sends: bool, join: Callable[..., cohort.Group], timeout: float):
        """Both ranks call it; it blocks until both have.

        Args:
          name: of the channel's group at the coordinator.
          sends: whether this end sends.
          join: makes the group, with the options of the process group.
          timeout: how long this end waits for the other one.
        """
        self._group = join(name, rank=_SENDER if sends else _RECEIVER, world_size=2,
                           timeout=float('inf'), join_timeout=timeout)
        self._header = torch.empty(_HEADER, dtype=torch.int64)
        self._receipt = torch.zeros(1, dtype=torch.uint8)

    def send(self, array: torch.Tensor, tag: int) -> None:
        """Sends contiguous bytes. Blocks until the receiver has them: so no rank leaves while a
        message of its own is on its way."""
        self._header[0] = tag
        self._header[1] = array.numel()
        self._group.exchange([(self._header, _RECEIVER), (array, _RECEIVER)], [])
        self._group.receive(self._receipt, _RECEIVER)

    def receive_header(self) -> Any:
        """Blocks until a message comes. Returns its tag and its number of bytes; the next call is
        `receive`."""
        self._group.receive(self._header, _SENDER)
        return self._header.tolist()

    def receive(self, array: torch.Tensor) -> None:
        """Receives the bytes of the message that receive_header has announced."""
        self._group.receive(array, _SENDER)
        self._group.send(self._receipt, _SENDER)

    def abort(self, reason: str) -> None:
        """Ends calls in flight on both ends. Any thread may call it."""
        self._group.abort(reason)

    def close(self) -> None:
        """Frees the memory of this end."""
        self._group.close()

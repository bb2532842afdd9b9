"""The way of messages from one rank to one other: a group of Cohort with two ranks."""

import contextlib
import threading
from typing import Any, Callable

import torch

import cohort

_SENDER, _RECEIVER = 0, 1
_HEADER = 2  # numbers: the tag, and the bytes


class Channel:
    """Messages from one rank to one other, in order. One thread sends or receives at a time.

    The first rank that leaves ends the calls of the other one. So neither leaves between two steps
    of one message: the sender waits for a receipt, and the receiver until the sender has got it.
    """

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
        self._receipt_is_taken = threading.Lock()  # held while that is awaited

    def send(self, array: torch.Tensor, tag: int) -> None:
        """Sends contiguous bytes. Blocks until the receiver has them."""
        self._header[0] = tag
        self._header[1] = array.numel()
        self._group.exchange([(self._header, _RECEIVER), (array, _RECEIVER)], [])
        self._group.receive(self._receipt, _RECEIVER)
        with contextlib.suppress(cohort.Error):  # the message has arrived
            self._group.send(self._receipt, _RECEIVER)

    def receive_header(self) -> Any:
        """Blocks until a message comes. Returns its tag and its number of bytes; the next call is
        `receive`."""
        self._group.receive(self._header, _SENDER)
        return self._header.tolist()

    def receive(self, array: torch.Tensor, then: Callable[[], None]) -> None:
        """Receives the bytes of the message that receive_header has announced, and calls `then` as
        soon as they are there. Blocks until the sender knows that."""
        self._group.receive(array, _SENDER)
        with self._receipt_is_taken, contextlib.suppress(cohort.Error):
            try:
                self._group.send(self._receipt, _SENDER)
            finally:
                then()
            self._group.receive(self._receipt, _SENDER)

    def close(self, reason: str, patience: float = 2) -> None:
        """Ends calls in flight on both ends, and frees the memory of this end. Any thread may call
        it. It waits `patience` seconds for a sender to take a receipt that has been sent."""
        if self._receipt_is_taken.acquire(timeout=max(0, patience)):
            self._receipt_is_taken.release()
        with contextlib.suppress(cohort.Error):
            self._group.abort(reason)
            self._group.close()

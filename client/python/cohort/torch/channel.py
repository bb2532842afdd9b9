"""The way of messages from one rank to one other: a group of Cohort with two ranks."""

import contextlib
import threading
from typing import Callable, NamedTuple

import torch

import cohort

_SENDER, _RECEIVER = 0, 1
_NUMBERS = 3  # of a header


class Header(NamedTuple):
    """The announcement of a message.

    Attributes:
      size: the number of bytes.
      is_refusal: the sender has a wrong argument. The bytes are the text of its error, in UTF-8.
    """
    tag: int
    size: int
    is_refusal: bool


def text_bytes(text: str) -> torch.Tensor:
    """A text as an array of bytes."""
    return torch.frombuffer(bytearray(text.encode('utf-8', 'replace')), dtype=torch.uint8) \
        if text else torch.empty(0, dtype=torch.uint8)


def text_of(array: torch.Tensor) -> str:
    """The text of such an array."""
    return array.numpy().tobytes().decode('utf-8', 'replace')


class Channel:
    """Messages from one rank to one other, in order. One thread sends or receives at a time.

    The receiver answers each message with a receipt, which is 0 or the number of bytes of the
    refusal that follows it. The first rank that leaves ends the calls of the other one. So neither
    leaves between two steps of one message: the sender waits for a receipt, and the receiver until
    the sender has got it.
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
        self._header = torch.empty(_NUMBERS, dtype=torch.int64)
        self._receipt = torch.zeros(1, dtype=torch.int64)
        self._receipt_is_taken = threading.Lock()  # held while that is awaited

    def send(self, array: torch.Tensor, tag: int, is_refusal: bool = False) -> str:
        """Sends contiguous bytes. Blocks until the receiver has them. Returns the error of a
        receiver whose argument is wrong; else an empty text."""
        for index, number in enumerate(Header(tag, array.numel(), is_refusal)):
            self._header[index] = number
        self._group.exchange([(self._header, _RECEIVER), (array, _RECEIVER)], [])
        self._group.receive(self._receipt, _RECEIVER)
        refusal = torch.empty(int(self._receipt), dtype=torch.uint8)
        if refusal.numel() > 0:
            self._group.receive(refusal, _RECEIVER)
        with contextlib.suppress(cohort.Error):  # the message has arrived
            self._group.send(self._receipt, _RECEIVER)
        return text_of(refusal)

    def receive_header(self) -> Header:
        """Blocks until a message comes. The next call is `receive`."""
        self._group.receive(self._header, _SENDER)
        tag, size, is_refusal = self._header.tolist()
        return Header(tag, size, bool(is_refusal))

    def receive(self, array: torch.Tensor, then: Callable[[], None], refusal: str = '') -> None:
        """Receives the bytes of the message that receive_header has announced, and calls `then` as
        soon as they are there. Blocks until the sender knows that. `refusal` is the error of this
        rank, which the sender gets, too."""
        self._group.receive(array, _SENDER)
        with self._receipt_is_taken, contextlib.suppress(cohort.Error):
            text = text_bytes(refusal)
            self._receipt[0] = text.numel()
            try:
                self._group.send(self._receipt, _SENDER)
                if refusal:
                    self._group.send(text, _SENDER)
            finally:
                then()
            self._group.receive(self._receipt, _SENDER)

    def close(self, reason: str, patience: float = 2) -> None:
        """Ends calls in flight on both ends, and frees the memory of this end. Any thread may call
        it. It waits `patience` seconds for a sender to take a receipt that has been sent. The group
        may be left a little later."""
        if self._receipt_is_taken.acquire(timeout=max(0, patience)):
            self._receipt_is_taken.release()
        with contextlib.suppress(cohort.Error):
            self._group.abort(reason)
        self._group._start_leaving('')  # pylint: disable=protected-access

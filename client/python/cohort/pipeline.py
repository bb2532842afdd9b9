"""Transfers between the stages of a pipeline, and around a ring of ranks."""

from typing import Any, List, Optional, Sequence, Tuple, Union

from cohort.arrays import Array, of_library
from cohort.errors import FailedPrecondition
from cohort.group import Group
from cohort.timeouts import Timeout

# One array, or a list or tuple of arrays, which travel together.
Arrays = Union[Array, Sequence[Array]]

# The numbers of the methods in the extension module.
_RECV_FORWARD, _RECV_BACKWARD, _SEND_FORWARD, _SEND_BACKWARD = 0, 1, 2, 3
_SEND_FORWARD_RECV_BACKWARD, _SEND_BACKWARD_RECV_FORWARD = 4, 5
_SEND_FORWARD_BACKWARD_RECV_FORWARD_BACKWARD = 6


class Pipeline:
    """The pipeline of one rank: activations go forward, gradients go backward.

        pipeline = cohort.Pipeline(group, library="torch")
        inputs = pipeline.recv_forward()                        # None on the first stage
        output = layers(inputs[0] if inputs else batch)
        gradients = pipeline.send_forward_recv_backward(output) if not pipeline.is_last else None

    A rank of the group is a stage; stage 0 is the first. The methods are ColossalAI's of the same
    names. They send one array, or a list or tuple of arrays, of any strides. They return a list of
    arrays with the types and shapes that were sent, in memory of the group, which require no grad.

    - Only the two stages of a transfer call. A call blocks until its arrays have arrived, and until
      the receiver has taken those that it sent; a few KiB need only be on their way. It releases
      the GIL. One call at a time runs on the pipelines and rings of a group.
    - Forward and backward transfers do not mix. Transfers of one direction arrive in the order sent.
    - On the first stage recv_forward returns None and send_backward sends nothing. On the last stage
      recv_backward returns None and send_forward sends nothing. There the methods that send and
      receive return None if they have nothing to send.
    - Between two stages, no other messages of the group are under way during a call.

    Errors of all: InvalidArgument (arrays that cannot be sent; their receiver raises it, too, and
    the group stays usable), FailedPrecondition (arrays for a stage that does not exist; nothing is
    sent), and those of messages: DeadlineExceeded, Aborted.
    """

    def __init__(self, group: Group, *, next_rank: Optional[int] = None,
                 prev_rank: Optional[int] = None, wrap: bool = False,
                 channel: Optional[int] = None, library: str = 'numpy',
                 tensor_group: Optional[Group] = None):
        """Makes this rank's end; no rank waits.

        Args:
          group: its ranks are the stages. Closing it ends the pipeline.
          next_rank, prev_rank: ranks in the group. None: the neighbours.
          wrap: for the methods that send and receive in one direction: the first stage follows the
            last one.
          channel: the first of three channels. Two pipelines of one group need channels of their
            own; 1 to 13 are free. None: that of the library.
          library: of received arrays: "numpy" or "torch". numpy has no bfloat16 and no float8.
          tensor_group: this rank's group whose ranks all send the same arrays, each to its own
            receiver, at the same time. Each sends a slice of the elements, and the receivers gather
            the slices in a group of the same size; they give theirs. An array travels whole if its
            elements do not divide by the size.

        Raises:
          ValueError: another library.
        """
        if library not in ('numpy', 'torch'):
            raise ValueError(f'library: expected "numpy" or "torch", got {library!r}')
        self._like = _example_of(library)
        self._groups = (group, tensor_group)  # which would leave with their last reference
        self._core = group._core.pipeline({
            'next_rank': next_rank, 'prev_rank': prev_rank, 'wrap': wrap, 'channel': channel,
            'tensor_group': getattr(tensor_group, '_core', tensor_group)})
        self._name = group.name
        self._last_place = self._core.place()

    def _place(self) -> Tuple[int, int, bool, bool]:
        """Stage, stages, is_first and is_last; when the group is closed, as they were before."""
        try:
            self._last_place = self._core.place()
        except FailedPrecondition:
            pass
        return self._last_place

    def __repr__(self) -> str:
        stage, stages = self._place()[:2]
        return f'<cohort.Pipeline of group {self._name!r}: stage {stage} of {stages}>'

    @property
    def stage(self) -> int:
        """This rank's stage: its rank in the group."""
        return self._place()[0]

    @property
    def stages(self) -> int:
        """The number of stages."""
        return self._place()[1]

    @property
    def is_first(self) -> bool:
        """Whether there is no previous stage."""
        return self._place()[2]

    @property
    def is_last(self) -> bool:
        """Whether there is no next stage."""
        return self._place()[3]

    # --- One transfer.

    def recv_forward(self, *, timeout: Timeout = None) -> Optional[List[Array]]:
        """Returns the previous stage's output."""
        return self._run(_RECV_FORWARD, None, None, True, False, timeout)[0]

    def recv_backward(self, *, timeout: Timeout = None) -> Optional[List[Array]]:
        """Returns the gradient that the next stage computed of this stage's output."""
        return self._run(_RECV_BACKWARD, None, None, False, True, timeout)[1]

    def send_forward(self, output: Arrays, *, timeout: Timeout = None) -> None:
        """Sends the output to the next stage."""
        self._run(_SEND_FORWARD, output, None, False, False, timeout)

    def send_backward(self, gradient: Arrays, *, timeout: Timeout = None) -> None:
        """Sends the gradient of this stage's input to the previous stage."""
        self._run(_SEND_BACKWARD, None, gradient, False, False, timeout)

    # --- Both ways with one neighbour.

    def send_forward_recv_backward(self, output: Optional[Arrays], *,
                                   timeout: Timeout = None) -> Optional[List[Array]]:
        """Sends `output`, unless it is None, to the next stage, and returns a gradient from it."""
        return self._run(_SEND_FORWARD_RECV_BACKWARD, output, None, False, True, timeout)[1]

    def send_backward_recv_forward(self, gradient: Optional[Arrays], *,
                                   timeout: Timeout = None) -> Optional[List[Array]]:
        """Sends `gradient`, unless it is None, to the previous stage, and returns an input from
        it."""
        return self._run(_SEND_BACKWARD_RECV_FORWARD, None, gradient, True, False, timeout)[0]

    # --- In one direction, for stages between two others and for rings: see `wrap`.

    def send_forward_recv_forward(self, output: Optional[Arrays], *, recv_prev: bool = True,
                                  timeout: Timeout = None) -> Optional[List[Array]]:
        """Sends `output`, unless it is None, to the next stage. Returns the previous stage's output
        if `recv_prev`."""
        return self._run(_SEND_FORWARD_BACKWARD_RECV_FORWARD_BACKWARD, output, None, recv_prev,
                         False, timeout)[0]

    def send_backward_recv_backward(self, gradient: Optional[Arrays], *, recv_next: bool = True,
                                    timeout: Timeout = None) -> Optional[List[Array]]:
        """Sends `gradient`, unless it is None, to the previous stage. Returns the next stage's
        gradient if `recv_next`."""
        return self._run(_SEND_FORWARD_BACKWARD_RECV_FORWARD_BACKWARD, None, gradient, False,
                         recv_next, timeout)[1]

    def send_forward_backward_recv_forward_backward(
            self, output: Optional[Arrays], gradient: Optional[Arrays], *, recv_prev: bool = True,
            recv_next: bool = True, timeout: Timeout = None
    ) -> Tuple[Optional[List[Array]], Optional[List[Array]]]:
        """The two methods above in one call, whose four transfers do not wait for each other.
        Returns the input from the previous stage and the gradient from the next one."""
        return self._run(_SEND_FORWARD_BACKWARD_RECV_FORWARD_BACKWARD, output, gradient, recv_prev,
                         recv_next, timeout)

    def _run(self, transfer: int, output: Any, gradient: Any, recv_prev: bool, recv_next: bool,
             timeout: Timeout) -> Tuple[Optional[List[Array]], Optional[List[Array]]]:
        inputs, gradients = self._core.run(
            transfer, output, gradient, recv_prev, recv_next, timeout)
        return self._wrap(inputs), self._wrap(gradients)

    def _wrap(self, memories: Optional[list]) -> Optional[List[Array]]:
        if memories is None:
            return None
        return [of_library(self._like, memory) for memory in memories]


def ring_shift(group: Group, array: Array, distance: int = 1, *,
               timeout: Timeout = None) -> Array:
    """Sends `array` to the rank that is `distance` further around the group, and returns the array
    of the rank as far behind, with that array's type and shape, in memory of the group.

    All ranks of the group call it with the same distance, which may be negative. If it is a multiple
    of the group's size, the result is a copy. If an argument of a rank is wrong, that rank and the
    receiver of its array raise InvalidArgument, and the group stays usable. Source: ColossalAI's
    ring_forward.
    """
    return of_library(array, group._core.ring_shift(array, distance, timeout))


def _example_of(library: str) -> Optional[Array]:
    if library == 'numpy':
        return None
    import torch  # pylint: disable=import-outside-toplevel
    return torch.empty(0)

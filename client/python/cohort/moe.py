"""Mixtures of experts: tokens to the ranks that have their experts, and back.

    placement = moe.ExpertPlacement.blocks(experts=64, ranks=group.size)
    experts = [all_experts[e] for e in placement.experts_of(group.rank)]
    batch = moe.dispatch_to_experts(group, hidden, ids, weights, placement)
    outputs = numpy.concatenate([expert(batch.hidden[rows])
                                 for expert, rows in zip(experts, batch.expert_rows)])
    hidden = moe.combine_from_experts(group, batch, outputs, weights_by="combine")

All ranks of the group call these functions, with or without tokens. Calls block and release the
GIL. Inputs are numpy arrays, tensors of PyTorch, or other arrays, of any strides; they are not
changed. Results are new arrays of the library of their inputs, in memory of the group, and require
no grad.

Errors of all: InvalidArgument, on all ranks, with the rank and the reason, before any rows move:
the arrays of a rank do not fit each other, or ranks differ. The group stays usable. Others are those
of the collectives of `cohort.Group`.
"""

from typing import List, NamedTuple, Optional, Sequence

from cohort import _core
from cohort.arrays import Array, of_library
from cohort.group import Group
from cohort.timeouts import Timeout


class DispatchedBatch(NamedTuple):
    """The tokens of all ranks, concatenated by rank."""
    hidden: Array
    companions: List[Array]
    extras: List[Array]
    sizes: List[int]  # by rank: the number of its rows


def dispatch(group: Group, hidden: Array, companions: Sequence[Array] = (),
             extras: Sequence[Array] = (), *, sizes: Optional[Sequence[int]] = None,
             sequence_parallel: int = 1, timeout: Timeout = None) -> DispatchedBatch:
    """Gathers the tokens of all ranks on all ranks.

    Args:
      hidden: [n, ...], this rank's n tokens, of any type.
      companions: arrays of n rows, such as the logits of a router, or weights and ids.
      extras: arrays of n rows, such as scales.
      sizes: by data rank, the number of its tokens, the same on all ranks. None: ranks exchange
        their numbers of rows, which takes one more exchange.
      sequence_parallel: how many neighbouring ranks share the tokens of a data rank: each has the
        quotient of `sizes`, rounded up. Ignored without `sizes`.
      timeout: of the whole call, in seconds. None: the group's.

    Source: `dispatch` of vLLM's DeviceCommunicatorBase.
    """
    made, companion_rows, extra_rows, rows = group._core.dispatch(
        hidden, companions, extras, sizes, sequence_parallel, timeout)
    return DispatchedBatch(of_library(hidden, made), _each_of_library(companions, companion_rows),
                           _each_of_library(extras, extra_rows), rows)


def combine(group: Group, hidden: Array, sizes: Sequence[int], *, sequence_parallel: int = 1,
            timeout: Timeout = None) -> Array:
    """Returns this rank's tokens, [n, ...], each the sum of all ranks' parts of it.

    Args:
      hidden: [N, ...], this rank's part of the tokens of all ranks.
      sizes: those of DispatchedBatch, or by data rank as in `dispatch`.
      sequence_parallel: as in `dispatch`; 1 for the sizes of DispatchedBatch.

    Source: `combine` of vLLM's DeviceCommunicatorBase.
    """
    return of_library(hidden, group._core.combine(hidden, sizes, sequence_parallel, timeout))


class ExpertPlacement:
    """The rank of each expert, the same on all ranks of a group. Make it once and use it in every
    step.

    Attributes:
      ranks: the number of ranks.
      rank_of_expert: by expert, its rank.
    """

    def __init__(self, rank_of_expert: Sequence[int], ranks: int):
        """Raises InvalidArgument, with the expert that is on no rank of 0..ranks-1."""
        self._own(_core.place_experts({'rank_of_expert': rank_of_expert, 'ranks': ranks}), ranks)

    @classmethod
    def blocks(cls, experts: int, ranks: int) -> 'ExpertPlacement':
        """Consecutive experts together; if they do not divide, the first ranks have one more."""
        return cls._place(experts, ranks, False)

    @classmethod
    def round_robin(cls, experts: int, ranks: int) -> 'ExpertPlacement':
        """Expert e is on rank e % ranks."""
        return cls._place(experts, ranks, True)

    @classmethod
    def _place(cls, experts: int, ranks: int, round_robin: bool) -> 'ExpertPlacement':
        placement = cls.__new__(cls)
        placement._own(_core.place_experts(
            {'experts': experts, 'ranks': ranks, 'round_robin': round_robin}), ranks)
        return placement

    def _own(self, core, ranks: int) -> None:
        self._core = core
        self.ranks = ranks
        self.rank_of_expert = core.rank_of_expert()

    def experts_of(self, rank: int) -> List[int]:
        """Returns the experts of a rank, by their local numbers."""
        return [expert for expert, holder in enumerate(self.rank_of_expert) if holder == rank]


class ExpertBatch:
    """The rows that a rank received: R rows, by source rank, then in the order of its tokens.

    Attributes:
      hidden: [R, ...].
      ids: i32 [R, k]: the local numbers of this rank's experts (their place in
        ExpertPlacement.experts_of). -1: the slot is empty, or its expert is on another rank.
      weights: f32 [R, k]: 0 where the id is -1.
      extras: arrays of R rows.
      form: "routed" or "gathered".
      expert_rows: by local expert: i64, its rows of `hidden`, in ascending order; in host memory.
      expert_slots: by local expert: i64, the slot of the expert in each of these rows.
    """

    def __init__(self, core, hidden: Array, ids: Array, weights: Array, extras: List[Array],
                 form: str, expert_rows: List[Array], expert_slots: List[Array]):
        self._core = core
        self.hidden = hidden
        self.ids = ids
        self.weights = weights
        self.extras = extras
        self.form = form
        self.expert_rows = expert_rows
        self.expert_slots = expert_slots

    def __repr__(self) -> str:
        rows = getattr(self.hidden, 'shape', '?')[0]  # memory of a GPU has no shape
        return (f'<cohort.moe.ExpertBatch, {self.form}: {rows} rows for {len(self.expert_rows)} '
                'experts>')


def dispatch_to_experts(group: Group, hidden: Array, ids: Array, weights: Array,
                        placement: ExpertPlacement, extras: Sequence[Array] = (), *,
                        form: str = 'auto', timeout: Timeout = None) -> ExpertBatch:
    """Sends each token once to each rank that has any of its experts.

    Args:
      hidden: [n, ...], this rank's n tokens, of any type.
      ids: i32 or i64 [n, k], the experts of each token, each once in a row; -1: an empty slot.
      weights: f32 [n, k].
      extras: arrays of n rows that travel with `hidden`, such as its scales.
      form: "routed": rows go to the ranks that have their experts. "gathered": every rank gets
        every row. "auto": the form that moves less.

    Raises:
      InvalidArgument: also for an id that is no expert or twice in a row, and for other shapes and
        types than these; on all ranks.

    Source: the all-to-all kernels behind `dispatch` of vLLM's DeviceCommunicatorBase.
    """
    core, rows, row_ids, row_weights, row_extras, used, counts, by_expert, slots = (
        group._core.dispatch_to_experts(
            hidden, ids, weights, extras, _core_of(placement), form, timeout))
    return ExpertBatch(core, of_library(hidden, rows), of_library(hidden, row_ids),
                       of_library(hidden, row_weights), _each_of_library(extras, row_extras), used,
                       _split(of_library(hidden, by_expert), counts),
                       _split(of_library(hidden, slots), counts))


def combine_from_experts(group: Group, batch: ExpertBatch, outputs: Array, *,
                         weights_by: str = 'experts', timeout: Timeout = None) -> Array:
    """Returns this rank's tokens, [n, ...], in the order in which they were dispatched: each is the
    weighted sum of its experts' outputs, and zeros if it has no expert.

    Args:
      batch: of dispatch_to_experts. It may be combined any number of times.
      outputs: of a floating type. With weights_by="experts": [R, ...], for each row of the batch
        the weighted sum over its experts here. With weights_by="combine": [A, ...], the unweighted
        output of each expert for each of its rows, concatenated by local expert as in
        batch.expert_rows; this function applies the weights.

    The sums run in f32 (f64 for f64), always in the same order. Each rank's part of a token and the
    whole are rounded once. Source: `combine` of vLLM's DeviceCommunicatorBase.
    """
    return of_library(outputs, group._core.combine_from_experts(
        _core_of(batch), outputs, weights_by, timeout))


def _core_of(argument):
    # The extension module refuses other arguments, on all ranks.
    return getattr(argument, '_core', argument)


def _each_of_library(likes: Sequence[Array], memories: list) -> List[Array]:
    return [of_library(like, memory) for like, memory in zip(likes, memories)]


def _split(array: Array, counts: List[int]) -> List[Array]:
    parts, begin = [], 0
    for count in counts:
        parts.append(array[begin:begin + count])
        begin += count
    return parts

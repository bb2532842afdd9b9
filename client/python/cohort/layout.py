"""Which ranks form which groups: the layouts of vLLM, Megatron and ColossalAI, and their groups.
Groups of any other lists of ranks."""

from collections.abc import Mapping
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from cohort import _core
from cohort.errors import FailedPrecondition, InvalidArgument
from cohort.group import Group
from cohort.timeouts import Timeout, seconds


class Layout(NamedTuple):
    """Which ranks of a world form which groups: plain values.

        layout = cohort.make_layout(8, {"tp": 2, "dp": 2, "pp": 2})
        layout.families["tensor"]      # [[0, 1], [2, 3], [4, 5], [6, 7]]
        layout.ranks_of("data", 3)     # [1, 3]
        layout.coordinates(3)          # {"tp": 1, "dp": 1, "pp": 0}

    Attributes:
      world_size: how many ranks it has: first_rank..first_rank + world_size - 1.
      axes: the size of each axis. The first axis varies fastest: its neighbours are neighbouring
        ranks. Axes are "tp", "cp", "ep", "dp", "pp", "external-dp", "tp-x", "tp-y" and "tp-z".
      families: by kind, the ranks of each of its groups. Kinds are those of the C++ library:
        "world", "tensor", "pipeline", "data", "context", "expert", "model" and others, some with a
        level, such as "context-level-2". A rank is in at most one group of a kind.
      first_rank: the lowest rank.
      separate: the kinds whose groups are not shared with other kinds that have the same ranks.
    """
    world_size: int
    axes: Dict[str, int]
    families: Dict[str, List[List[int]]]
    first_rank: int = 0
    separate: Sequence[str] = ()

    def ranks_of(self, kind: str, rank: int) -> List[int]:
        """Returns the ranks of the group of this kind that `rank` is in; empty if it is in none of
        them. Raises FailedPrecondition (the layout does not have the kind) or InvalidArgument (it
        does not have the rank)."""
        if kind not in self.families:
            raise FailedPrecondition(f'the layout has no groups of kind {kind}; it has '
                                     + ', '.join(self.families))
        self._check_rank(rank)
        return next((list(ranks) for ranks in self.families[kind] if rank in ranks), [])

    def coordinates(self, rank: int) -> Dict[str, int]:
        """Returns the place of `rank` on each axis. Raises InvalidArgument (the layout does not
        have the rank)."""
        self._check_rank(rank)
        place = rank - self.first_rank
        at = {}
        for axis, size in self.axes.items():
            place, at[axis] = divmod(place, size)
        return at

    def with_family(self, kind: str, lists: Sequence[Sequence[int]], *,
                    separate: bool = False) -> 'Layout':
        """Returns a layout that also has the groups `lists` of `kind`. Raises InvalidArgument (the
        layout has the kind, the library does not; a list is empty; a rank is twice in the lists, or
        is not in the layout)."""
        if kind in self.families:
            raise InvalidArgument(f'the layout has groups of kind {kind} already')
        families = {**self.families, kind: [list(ranks) for ranks in lists]}
        apart = [*self.separate, kind] if separate else list(self.separate)
        layout = self._replace(families=families, separate=apart)
        _core.check_layout(layout)
        return layout

    def _check_rank(self, rank: int) -> None:
        last = self.first_rank + self.world_size - 1
        if not self.first_rank <= rank <= last:
            raise InvalidArgument(f'rank {rank} is not in {self.first_rank}..{last}')


def make_layout(world_size: int, axes: Dict[str, int], *, first_rank: int = 0) -> Layout:
    """Returns a layout with the axes in the order of the dict, the first varying fastest.

    It has the kinds "world", "tensor" (tp), "context" (cp), "expert" (ep), "data" (dp), "pipeline"
    (pp) and "model" (tp and pp). Raises InvalidArgument, with the numbers: an unknown axis, a size
    below 1, sizes whose product is not world_size, or cp and ep both above 1.
    """
    return Layout(*_core.make_layout(
        {'world_size': world_size, 'axes': axes, 'first_rank': first_rank}))


def vllm_layout(world_size: int, *, tensor: int = 1, pipeline: int = 1, prefill_context: int = 1,
                decode_context: int = 1, data: int = 1, external_data: Optional[int] = None,
                decode_order: str = 'tensor-first', experts: bool = False,
                expert_load_balancing: bool = False) -> Layout:
    """Returns the groups of vLLM's initialize_model_parallel.

    rank = (((e * data + d) * pipeline + p) * prefill_context + c) * tensor + t. The kinds are
    "world", "inner-world", "tensor", "decode-context", "context", "pipeline" and "data"; with
    `experts` also "expert"; with `expert_load_balancing` also "expert-load-balancing".

    Args:
      external_data: replicas that know nothing of each other. None: the rest of the world.
      decode_order: "tensor-first" or "context-first": how decode context counts through the ranks
        of tensor and context before it cuts them into runs.

    Raises:
      InvalidArgument: with the numbers: the world is no multiple of a replica; tensor *
        prefill_context is no multiple of decode_context; load balancing without experts.
    """
    return Layout(*_core.vllm_layout({
        'world_size': world_size, 'tensor': tensor, 'pipeline': pipeline,
        'prefill_context': prefill_context, 'decode_context': decode_context, 'data': data,
        'external_data': external_data, 'decode_order': decode_order, 'experts': experts,
        'expert_load_balancing': expert_load_balancing}))


def megatron_layout(world_size: int, *, tensor: int = 1, pipeline: int = 1, context: int = 1,
                    data: Optional[int] = None, expert: int = 1,
                    expert_tensor: Optional[int] = None, virtual_pipeline: int = 1,
                    order: str = 'tp-cp-ep-dp-pp', first_rank: int = 0,
                    hierarchical_context: Sequence[int] = (), hybrid_context: bool = False,
                    optimizer_instances: int = 1, embedding_stages: Optional[Sequence[int]] = None,
                    position_embedding_stages: Optional[Sequence[int]] = None) -> Layout:
    """Returns the groups of Megatron's parallel_state.initialize_model_parallel.

    Dense layers have the kinds "tensor", "pipeline", "data", "context" and their combinations, such
    as "tensor-data-context". Experts' layers have "expert", "expert-tensor", "expert-data" and
    others. The axes are those of dense layers.

    Args:
      data: None: world_size / (tensor * pipeline * context).
      expert_tensor: the tensor size of experts' layers. None: tensor.
      virtual_pipeline: stages that each rank of the pipeline has.
      order: the axes, the first varying fastest.
      hierarchical_context: sizes whose product is `context`, the innermost first.
      hybrid_context: adds runs of 2, 4, ... of the ranks of data and context.
      optimizer_instances: parts of the data and context ranks that each hold all optimizer state.
      embedding_stages: stages that hold token embeddings. None: the first and the last.
      position_embedding_stages: None: the first.

    Raises:
      InvalidArgument: with the numbers: sizes that do not divide the world or each other, or dense
        and experts' layers with different pipelines.
    """
    return Layout(*_core.megatron_layout({
        'world_size': world_size, 'tensor': tensor, 'pipeline': pipeline, 'context': context,
        'data': data, 'expert': expert, 'expert_tensor': expert_tensor,
        'virtual_pipeline': virtual_pipeline, 'order': order, 'first_rank': first_rank,
        'hierarchical_context': hierarchical_context, 'hybrid_context': hybrid_context,
        'optimizer_instances': optimizer_instances, 'embedding_stages': embedding_stages,
        'position_embedding_stages': position_embedding_stages}))


def colossalai_layout(world_size: int, *, tensor: int = 1, pipeline: int = 1,
                      data: Optional[int] = None, mode: str = 'none', depth: int = 1,
                      expert: int = 1) -> Layout:
    """Returns the groups of ColossalAI's ParallelContext.init_parallel_groups.

    rank = (d * pipeline + p) * tensor + t. The kinds are "world", "tensor", "pipeline", "model" and
    "data", and those of the mode, such as "tensor-2d-row"; with expert > 1 also "expert" and
    "expert-data".

    Args:
      data: None: world_size / (tensor * pipeline).
      mode: of the tensor axis: "none", "1d", "2d", "2.5d", "3d" or "sequence".
      depth: of mode "2.5d".
      expert: above 1: the length of the runs of the data axis that hold different experts.

    Raises:
      InvalidArgument: with the numbers: sizes that do not divide the world, or a tensor size that
        does not fit the mode.
    """
    return Layout(*_core.colossalai_layout({
        'world_size': world_size, 'tensor': tensor, 'pipeline': pipeline, 'data': data,
        'mode': mode, 'depth': depth, 'expert': expert}))


def split_layers(layers: int, stages: int,
                 counts: Optional[Sequence[int]] = None) -> List[range]:
    """Returns the layers of each pipeline stage: counts[i] for stage i, or as vLLM splits them.

    vLLM gives the remaining layers to the stages before the last, from the back. Raises
    InvalidArgument (stages below 1, or counts that do not add up to `layers`).
    """
    return [range(*ends) for ends in _core.split_layers(
        {'layers': layers, 'stages': stages, 'counts': counts})]


class ParallelGroups(Mapping[str, Group]):
    """The groups of a layout that this rank is in, by kind: a read-only mapping.

    Kinds whose groups have the same ranks share one Group, which orders the calls of these kinds.
    The group of all ranks of the world is the world itself.

    Attributes:
      layout: the layout.
    """

    def __init__(self, layout: Layout, world: Group, groups: Dict[str, Group]):
        self.layout = layout
        self._rank = world.rank
        self._world = world
        self._groups = groups

    def __getitem__(self, kind: str) -> Group:
        if kind not in self._groups:
            raise KeyError(f'rank {self._rank} is in no group of kind {kind}; it is in '
                           + ', '.join(self._groups))
        return self._groups[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)

    def ranks(self, kind: str) -> Tuple[int, ...]:
        """Returns the ranks of the group in the world: rank r of the group is rank ranks(kind)[r]
        of the world. Raises as `self[kind]`."""
        self[kind]  # pylint: disable=pointless-statement
        return tuple(self.layout.ranks_of(kind, self._rank))

    def close(self) -> None:
        """Leaves the groups, except for the world. It may be called twice."""
        for group in self._groups.values():
            if group is not self._world:
                group.close()

    def __enter__(self) -> 'ParallelGroups':
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()


def create_layout(world: Group, layout: Layout, *, kinds: Sequence[str] = (),
                  separate: Sequence[str] = (), name: str = '',
                  timeout: Timeout = 300) -> ParallelGroups:
    """Creates the groups of `layout` that this rank is in.

        with cohort.create_layout(world, cohort.vllm_layout(world.size, tensor=2)) as groups:
            groups["tensor"].all_reduce(x, out=x)

    All ranks of `world` call it, with the same layout and arguments, which one exchange of a few
    bytes compares before any group is created. The ranks of the layout are ranks of `world`, which
    may have more. The groups are joined as `world` was: with its address, tenant, lease and timeout.
    Each has generations and failures of its own. The call releases the GIL. On the main thread a
    signal handler that raises ends it and aborts `world` on all ranks, because the other ranks wait for this one.

    Args:
      kinds: the kinds to create, where some groups would cost memory or time. Empty: all kinds.
      separate: kinds that share no group with other kinds, besides those of the layout.
      name: precedes the kind in the names of the groups.
      timeout: limits, in seconds, the wait until all ranks have called, and then each wait while
        the groups form. The whole call takes at most seven times as long, and a minute.

    Raises:
      InvalidArgument: an argument of a rank is wrong, or two ranks differ. All ranks get it, with
        the ranks that it names, and `world` stays usable.
      Others: a rank could not create its groups. All ranks get its error, which names it, and no
        rank keeps a group. Or ranks did not come: DeadlineExceeded, Aborted.
    """
    made = world._core.create_layout(layout, kinds, separate, name, seconds(timeout, 300))
    groups = {}
    for core, served in made:
        group = world if core is None else Group._of(core, world._join_timeout)
        groups.update((kind, group) for kind in served)
    return ParallelGroups(layout, world, {kind: groups[kind] for kind in layout.families
                                          if kind in groups})


def create_groups(world: Group, lists: Sequence[Sequence[int]], *, overlap: bool = False,
                  name: str = '', timeout: Timeout = 300) -> List[Group]:
    """Creates the groups of `lists`, ranks of `world`, that this rank is in.

        ring = [[rank, (rank + 1) % world.size] for rank in range(world.size)]
        groups = cohort.create_groups(world, ring, overlap=True)      # two groups on each rank

    All ranks of `world` call it, with the same arguments, which one exchange of a few bytes
    compares before any group is created. Returns the groups in the order of `lists`: no group if
    this rank is in no list, and at most one unless `overlap`. Rank r of a group is rank list[r] of
    the world. Each list has a group of its own, also a list of all ranks. The groups are joined as
    those of create_layout, and a signal ends the call in the same way.

    Args:
      overlap: whether a rank may be in several lists.
      name: the beginning of the names of the groups.
      timeout: limits, in seconds, the wait until all ranks have called, and then each wait while
        the groups form. The whole call takes at most seven times as long, and a minute.

    Raises:
      InvalidArgument: an argument of a rank is wrong: a rank outside of the world, twice in a
        list, or in two lists without `overlap`; an empty list. Or two ranks differ. All ranks get
        it, with the ranks that it names, and `world` stays usable.
      Others: a rank could not create its groups. All ranks get its error, which names it, and no
        rank keeps a group. Or ranks did not come: DeadlineExceeded, Aborted.
    """
    return [Group._of(core, world._join_timeout) for core in world._core.create_groups(
        lists, overlap, name, seconds(timeout, 300))]


def split_group(world: Group, color: Union[int, str, None], key: int, name: str,
                timeout: Timeout) -> Optional[Group]:
    """Group.split."""
    places = world.all_gather_objects([color, key], timeout=seconds(timeout, 300))
    lists: Dict[Union[int, str], List[int]] = {}
    for rank, (its_color, its_key) in enumerate(places):
        if not isinstance(its_color, (int, str, type(None))) or not isinstance(its_key, int):
            raise InvalidArgument(
                f'split: rank {rank} of group {world.name}: expected a number, a str or None as '
                f'color and a number as key, got {its_color!r} and {its_key!r}', culprit=rank)
        if its_color is not None:
            lists.setdefault(its_color, []).append(rank)
    for ranks in lists.values():
        ranks.sort(key=lambda rank: (places[rank][1], rank))
    groups = create_groups(world, list(lists.values()), name=name, timeout=timeout) if lists else []
    return groups[0] if groups else None

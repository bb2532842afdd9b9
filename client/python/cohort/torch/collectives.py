"""The collectives of a process group, as PyTorch calls them.

One file, though long: PyTorch demands one class with a method for each collective.
"""

import contextlib
import functools
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

import cohort
from cohort.torch import sparse
from cohort.torch.call_arguments import (check_count, check_own_sizes, check_pairs, check_parts,
                                         in_list, on_gpu, options, refusal_text)
from cohort.torch.flat import FlatOutput, JoinedOutput, flat_input, join, movable, reducible
from cohort.torch.reductions import reduction_of
from cohort.torch.work import CompletedWork, StreamWork

# The numbers of the collectives in the C++ library.
_ALL_REDUCE, _REDUCE, _BROADCAST, _ALL_GATHER, _REDUCE_SCATTER = 1, 2, 3, 4, 5
_ALL_TO_ALL, _GATHER, _SCATTER, _ALL_GATHER_V, _REDUCE_SCATTER_V = 6, 7, 8, 9, 10
_GATHER_V, _ALL_TO_ALL_V = 11, 12
_NO_OP = 1

_DONE = CompletedWork()

# The steps of a call, each of which all ranks take together. The generator makes the arrays of a
# step and yields a function that runs it, whose result it gets. It appends the outputs to its
# argument, and they are finished after the last step. An exception of the generator fails the step
# on all ranks, so nothing follows the last step in it.
_Steps = Callable[[list], Iterator[Callable[[], Any]]]
# (options, steps, the tensors that the call writes, whether they are in host memory, and, if the
# call is one collective of the library, the arguments of its `run`, which then replaces the steps)
_Planned = Tuple[Any, Optional[_Steps], Sequence[torch.Tensor], bool, Optional[tuple]]


def _stacked(outputs: List[torch.Tensor]) -> List[torch.Tensor]:
    same = all(output.shape == outputs[0].shape for output in outputs)
    return [torch.stack(outputs)] if same and outputs else outputs


def _collective(name: str) -> Callable:
    """Makes a method that runs a call of a method that plans it.

    The method returns a _Planned and runs nothing. If it raises an exception, this rank cannot take
    part in the call, which the other ranks wait for: the call fails on all ranks, in its turn.
    """
    def decorate(plan: Callable[..., _Planned]) -> Callable[..., dist._Work]:
        @functools.wraps(plan)
        def method(self, *args, **kwargs):
            # pylint: disable=protected-access
            try:
                opts, steps, result, on_host, collective = plan(self, *args, **kwargs)
                is_async = opts.asyncOp
            except Exception as error:  # pylint: disable=broad-exception-caught
                return self._refuse(name, error, args, kwargs)
            self._sequence += 1
            calls = self._calls.here()
            if collective is not None and not is_async and not calls.busy and calls.last is None:
                calls.blocks = True
                try:
                    self._run(*collective)
                except cohort.Error as error:
                    raise self._explained(error, name, opts) from error
                finally:
                    calls.blocks = False
                return _DONE
            return self._submit(name, opts, steps, result, on_host, collective)
        return method
    return decorate


class Collectives:
    """The methods have the names and the arguments of torch._C._distributed_c10d.ProcessGroup.

    A call with `opts.asyncOp` false runs on the calling thread and returns when it is over. The
    group's CallQueue runs the others, in the order in which they were started. Work on GPUs is
    enqueued on the current stream by the calling thread.

    A wrong argument of one rank fails the call on all ranks with InvalidArgument, in its turn; an
    asynchronous call raises it where it is waited for. The ranks stay in step. With tensors on GPUs,
    this rank gets its exception at once, and the group ends on all ranks with InvalidArgument,
    because their GPUs are in the call; if all ranks are wrong alike, the group goes on.

    A subclass has the attributes _core, the group of the extension module; _calls, a CallQueue;
    _seconds, the timeout; _rank and _size; and _coalesced, the calls between _start_coalescing and
    _end_coalescing, or None.
    """

    # --- How a call runs.

    def _submit(self, name: str, opts: Any, steps: Optional[_Steps],
                result: Sequence[torch.Tensor], on_host: bool, collective: Optional[tuple]
                ) -> dist._Work:
        """Runs a call that was planned, or starts it."""
        calls = self._calls.here()

        def call():
            try:
                if collective is None:
                    self._take(steps, name, self._timeout_of(opts), on_host)
                else:
                    self._run(*collective)
            except cohort.Error as error:
                raise self._explained(error, name, opts) from error
        if on_host and opts.asyncOp:
            if collective is not None and not calls.busy:
                work = calls.start_collective(self._core.start(*collective), result,
                                              lambda error: self._explained(error, name, opts))
            else:
                work = calls.start(call, result, lambda: self._describe(name))
            return self._issued(work)
        if calls.busy:
            if on_host:
                calls.start(call, result, lambda: self._describe(name)).wait()
                return _DONE
            calls.start(lambda: None, (), lambda: self._describe(name)).wait()
        calls.settle()
        calls.blocks = True
        try:
            call()
        finally:
            calls.blocks = False
        if on_host or not opts.asyncOp:
            return CompletedWork(result) if opts.asyncOp else _DONE
        return self._issued(StreamWork(result, result[0].device, (call, collective)))

    def _take(self, steps: _Steps, name: str, seconds: float, on_host: bool) -> None:
        """Takes the steps of a call."""
        outputs: list = []
        planned = steps(outputs)
        value = None
        while True:
            try:
                step = planned.send(value)
            except StopIteration:
                break
            except Exception as error:  # pylint: disable=broad-exception-caught
                try:
                    self._core.fail(refusal_text(name, error), seconds, not on_host)
                except cohort.InvalidArgument as told:
                    raise (error if isinstance(error, cohort.Error) else told) from error
                raise
            value = step()
        for output in outputs:
            output.finish()

    def _refuse(self, name: str, error: Exception, args: tuple, kwargs: dict) -> dist._Work:
        """Takes the turn of a call that this rank cannot plan, with these arguments."""
        given = (*args, *kwargs.values())
        if on_gpu(given):
            with contextlib.suppress(cohort.Error):
                self._core.fail(refusal_text(name, error), self._seconds, True)
            raise error
        opts = next((each for each in given if isinstance(getattr(each, 'asyncOp', None), bool)),
                    c10d.AllreduceOptions())

        def steps(_):
            yield from ()
            raise error
        self._sequence += 1
        return self._submit(name, opts, steps, (), True, None)

    def _explained(self, error: cohort.Error, name: str, opts: Any) -> cohort.Error:
        """The error with the call, the process group, and the timeout if that has ended."""
        timeout = f', after the timeout of {self._timeout_of(opts):g} s' \
            if isinstance(error, cohort.DeadlineExceeded) else ''
        return type(error)(
            f'{self._describe(name)}{timeout}: {error.message}', missing=error.missing,
            culprit=error.culprit, culprit_member=error.culprit_member, cause=error.cause,
            group=error.group, generation=error.generation, operation=error.operation)

    def _describe(self, name: str) -> str:
        return f'{name} of rank {self._rank} in process group {self.group_name} ' \
               f'({self.cohort_name})'

    def _timeout_of(self, opts: Any) -> float:
        """The seconds of the call, or those of the group."""
        timeout = opts.timeout
        return timeout.total_seconds() if timeout.days >= 0 and timeout else self._seconds

    def _start_coalescing(self, device: torch.device) -> None:
        self._coalesced = []

    def _end_coalescing(self, device: torch.device) -> dist._Work:
        self._exchange_collected()
        works, self._coalesced = self._coalesced, None
        return self._all_of(works or [])

    # The names by which the C++ of later versions of PyTorch calls them.
    start_coalescing, end_coalescing = _start_coalescing, _end_coalescing

    def _agree_on(self, what: str, own: int, seconds: float) -> Callable[[], None]:
        """A step that fails on all ranks unless all have the same number."""
        def step():
            numbers = self._core.exchange_sizes(own, seconds)
            for rank, number in enumerate(numbers):
                if number != numbers[0]:
                    raise cohort.InvalidArgument(
                        f'rank {rank} has {number} {what}, and rank 0 has {numbers[0]}')
        return step

    # --- Reductions.

    @_collective('all_reduce')
    def allreduce(self, tensors, opts=None, timeout=None, *, op=None):
        """See torch.distributed.all_reduce."""
        if type(opts) is not c10d.AllreduceOptions:  # pylint: disable=unidiomatic-typecheck
            opts = options(c10d.AllreduceOptions, opts, timeout, reduceOp=op)
            tensors = in_list(tensors)
        tensor, = tensors
        if tensor.is_sparse:
            return self._plan_sparse(tensor, opts)
        reduction = reduction_of(opts.reduceOp)
        if tensor.requires_grad or tensor.dtype.is_complex:
            tensor = reducible(tensor, reduction)
        seconds = self._timeout_of(opts)
        return (opts, None, tensors, not tensor.is_cuda,
                (_ALL_REDUCE, tensor, tensor, reduction, -1, -1, seconds))

    @_collective('all_reduce')
    def allreduce_sparse(self, tensors, opts=None):
        """See torch.distributed.all_reduce, for sparse tensors in the COO layout: the sum."""
        tensor, = tensors
        return self._plan_sparse(tensor, opts or c10d.AllreduceOptions())

    def _plan_sparse(self, tensor, opts):
        seconds = self._timeout_of(opts)
        if opts.reduceOp != dist.ReduceOp.SUM:
            raise ValueError('all_reduce of a sparse tensor: expected the reduction SUM')
        return (opts, lambda outputs: sparse.all_reduce(self._core, self._size, tensor, seconds,
                                                        outputs),
                [tensor], True, None)

    @_collective('all_reduce_coalesced')
    def allreduce_coalesced(self, tensors, opts=None):
        """See torch.distributed.all_reduce_coalesced."""
        opts = opts or c10d.AllreduceCoalescedOptions()
        reduction = reduction_of(opts.reduceOp)
        seconds = self._timeout_of(opts)
        by_type = {}
        for tensor in tensors:
            array = reducible(tensor, reduction)
            by_type.setdefault(array.dtype, []).append(array)
        on_host = not tensors[0].is_cuda

        def steps(_):
            if len(by_type) > 1 and on_host:
                yield self._agree_on('types of tensors', len(by_type), seconds)
            for same in by_type.values():
                yield functools.partial(self._core.all_reduce_coalesced, same, same, reduction,
                                        seconds)
        return opts, steps, tensors, on_host, None

    @_collective('reduce')
    def reduce(self, tensors, opts=None, op=None, timeout=None, *, root=None):
        """See torch.distributed.reduce."""
        if type(opts) is not c10d.ReduceOptions:  # pylint: disable=unidiomatic-typecheck
            opts = options(c10d.ReduceOptions, op, timeout,
                            rootRank=opts if root is None else root)
            tensors = in_list(tensors)
        reduction = reduction_of(opts.reduceOp)
        tensor, = tensors
        tensor = reducible(tensor, reduction)
        root = opts.rootRank
        out = tensor if root == self._rank else None
        seconds = self._timeout_of(opts)
        return (opts, None, tensors, not tensor.is_cuda,
                (_REDUCE, tensor, out, reduction, -1, root, seconds))

    @_collective('reduce_scatter')
    def reduce_scatter(self, output_tensors, input_tensors, opts=None, timeout=None, *, op=None):
        """See torch.distributed.reduce_scatter. The inputs may have different sizes."""
        if type(opts) is not c10d.ReduceScatterOptions:  # pylint: disable=unidiomatic-typecheck
            opts = options(c10d.ReduceScatterOptions, opts, timeout, reduceOp=op)
            if isinstance(output_tensors, torch.Tensor):
                output_tensors, input_tensors = [output_tensors], [input_tensors]
        output, = output_tensors
        inputs, = input_tensors
        check_count('reduce_scatter', 'inputs', inputs, self._size)
        check_parts('reduce_scatter', 'input', inputs, output, self._rank)
        reduction = reduction_of(opts.reduceOp)
        seconds = self._timeout_of(opts)

        def steps(outputs):
            flat, sizes = join([reducible(each, reduction) for each in inputs])
            outputs.append(FlatOutput(reducible(output, reduction)))
            yield self._part(_REDUCE_SCATTER, _REDUCE_SCATTER_V, flat, outputs[0].flat, reduction,
                             sizes, -1, seconds)
        return opts, steps, [output], not output.is_cuda, None

    def _part(self, even: int, ragged: int, source: Any, out: Any, reduction: Any, sizes: List[int],
              root: int, seconds: float) -> Callable[[], None]:
        """A step: the collective `even`, or `ragged` if the sizes differ."""
        if min(sizes) == max(sizes):
            return functools.partial(self._run, even, source, out, reduction, 0, root, seconds)
        return functools.partial(self._core.run_ragged, ragged, source, out, reduction, 0, root,
                                 (sizes,), seconds)

    @_collective('reduce_scatter_tensor')
    def reduce_scatter_single(self, output, input, opts=None):  # pylint: disable=redefined-builtin
        """See torch.distributed.reduce_scatter_tensor."""
        return self._plan_reduce_scatter([output], [input], opts,
                                         input.is_contiguous() and output.is_contiguous())

    _reduce_scatter_base = reduce_scatter_single

    @_collective('reduce_scatter_tensor_coalesced')
    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=None):
        """Several reduce_scatter_single in one call."""
        check_pairs('reduce_scatter_tensor_coalesced', outputs, inputs)
        for each in inputs:
            # The functional collective passes complex tensors as pairs of numbers.
            base = each._base  # pylint: disable=protected-access
            if base is not None and base.dtype.is_complex and each.dim() == base.dim() + 1:
                reducible(base, reduction_of((opts or c10d.ReduceScatterOptions()).reduceOp))
        return self._plan_reduce_scatter(outputs, inputs, opts, False)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _plan_reduce_scatter(self, outputs, inputs, opts, is_flat):
        opts = opts or c10d.ReduceScatterOptions()
        reduction = reduction_of(opts.reduceOp)
        seconds = self._timeout_of(opts)
        on_host = not outputs[0].is_cuda

        def steps(written):
            if len(outputs) > 1 and on_host:
                yield self._agree_on('tensors', len(outputs), seconds)
            for output, each in zip(outputs, inputs):
                flat = reducible(each, reduction).reshape(-1)
                written.append(FlatOutput(reducible(output, reduction)))
                yield functools.partial(self._run, _REDUCE_SCATTER, flat, written[-1].flat,
                                        reduction, 0, -1, seconds)
        collective = (_REDUCE_SCATTER, reducible(inputs[0], reduction).view(-1),
                      reducible(outputs[0], reduction).view(-1), reduction, 0, -1,
                      seconds) if is_flat else None
        return opts, steps, outputs, on_host, collective

    # --- From one rank to all, and from all to one.

    @_collective('broadcast')
    def broadcast(self, tensors, opts=None, timeout=None, *, root=None):
        """See torch.distributed.broadcast."""
        if type(opts) is not c10d.BroadcastOptions:  # pylint: disable=unidiomatic-typecheck
            root = opts if root is None else root
            opts = options(c10d.BroadcastOptions, None, timeout,
                            **({} if root is None else {'rootRank': root}))
            tensors = in_list(tensors)
        root = opts.rootRank
        seconds = self._timeout_of(opts)
        tensor, = tensors
        array = movable(tensor)
        return (opts, None, tensors, not tensor.is_cuda,
                (_BROADCAST, None, array, _NO_OP, -1, root, seconds))

    @_collective('gather')
    def gather(self, output_tensors, input_tensors, opts=None, timeout=None, *, root=None):
        """See torch.distributed.gather. In host memory, the ranks' sizes may differ."""
        if type(opts) is not c10d.GatherOptions:  # pylint: disable=unidiomatic-typecheck
            opts = options(c10d.GatherOptions, None, timeout,
                            rootRank=opts if root is None else root)
            output_tensors, input_tensors = [output_tensors], [input_tensors]
        root = opts.rootRank
        seconds = self._timeout_of(opts)
        source, = input_tensors
        is_root = self._rank == root
        outputs = []
        if is_root:
            outputs, = output_tensors
            check_count('gather', 'outputs', outputs, self._size)
            check_parts('gather', 'output', outputs, source, self._rank)

        def steps(written):
            flat = flat_input(source)
            sizes = [flat.numel()] * self._size
            if not source.is_cuda:
                sizes = yield functools.partial(self._core.exchange_sizes, flat.numel(), seconds)
            if is_root:
                written.append(JoinedOutput(outputs))
                check_own_sizes('gather', 'output', written[0].sizes, sizes)
            yield self._part(_GATHER, _GATHER_V, flat, written[0].flat if is_root else None, _NO_OP,
                             sizes, root, seconds)
        return opts, steps, outputs, not source.is_cuda, None

    @_collective('scatter')
    def scatter(self, output_tensors, input_tensors, opts=None, timeout=None, *, root=None):
        """See torch.distributed.scatter. In host memory, the ranks' sizes may differ."""
        if type(opts) is not c10d.ScatterOptions:  # pylint: disable=unidiomatic-typecheck
            opts = options(c10d.ScatterOptions, None, timeout,
                            rootRank=opts if root is None else root)
            output_tensors, input_tensors = in_list(output_tensors), [input_tensors]
        root = opts.rootRank
        seconds = self._timeout_of(opts)
        output, = output_tensors
        is_root = self._rank == root
        inputs = []
        if is_root:
            inputs, = input_tensors
            check_count('scatter', 'inputs', inputs, self._size)
            check_parts('scatter', 'input', inputs, output, self._rank)

        def steps(written):
            written.append(FlatOutput(output))
            out = written[0].flat
            sizes = [out.numel()] * self._size
            if not output.is_cuda:
                sizes = yield functools.partial(self._core.exchange_sizes, out.numel(), seconds)
            flat = None
            if is_root:
                flat, own_sizes = join(inputs)
                check_own_sizes('scatter', 'input', own_sizes, sizes)
            if min(sizes) == max(sizes):
                yield functools.partial(self._run, _SCATTER, flat, out, _NO_OP, 0, root, seconds)
                return
            nothing = [0] * self._size
            receives = [out.numel() if rank == root else 0 for rank in range(self._size)]
            yield functools.partial(
                self._core.run_ragged, _ALL_TO_ALL_V, out.new_empty(0) if flat is None else flat,
                out, _NO_OP, 0, -1, (sizes if is_root else nothing, receives), seconds)
        return opts, steps, output_tensors, not output.is_cuda, None

    # --- From all to all.

    def allgather(self, *args, **kwargs):
        """See torch.distributed.all_gather. The future of the work has NCCL's value: one tensor, whose
        rows are the ranks, if all outputs have one shape."""
        work = self._allgather(*args, **kwargs)
        if work is not _DONE:
            work.value = functools.partial(_stacked, work.result())
        return work

    @_collective('all_gather')
    def _allgather(self, output_tensors, input_tensors, opts=None, timeout=None):
        """See torch.distributed.all_gather. The ranks' sizes may differ."""
        if type(opts) is not c10d.AllgatherOptions:  # pylint: disable=unidiomatic-typecheck
            opts = options(c10d.AllgatherOptions, None, timeout)
            if isinstance(input_tensors, torch.Tensor):
                output_tensors, input_tensors = [output_tensors], [input_tensors]
        outputs, = output_tensors
        source, = input_tensors
        check_count('all_gather', 'outputs', outputs, self._size)
        return self._plan_all_gather('all_gather', [outputs], [source], opts)

    @_collective('all_gather_coalesced')
    def allgather_coalesced(self, output_lists, inputs, opts=None):
        """See torch.distributed.all_gather_coalesced."""
        opts = opts or c10d.AllgatherOptions()
        check_count('all_gather_coalesced', 'output lists', output_lists, self._size)
        for each in output_lists:
            check_pairs('all_gather_coalesced', each, inputs)
        return self._plan_all_gather(
            'all_gather_coalesced',
            [[each[i] for each in output_lists] for i in range(len(inputs))], inputs, opts)

    def _plan_all_gather(self, name, output_lists: List[List[torch.Tensor]], inputs, opts):
        seconds = self._timeout_of(opts)
        on_host = not inputs[0].is_cuda
        for outputs, source in zip(output_lists, inputs):
            check_parts(name, 'output', outputs, source, self._rank)

        def steps(written):
            if len(inputs) > 1 and on_host:
                yield self._agree_on('tensors', len(inputs), seconds)
            for outputs, source in zip(output_lists, inputs):
                out = JoinedOutput(outputs)
                written.append(out)
                yield self._part(_ALL_GATHER, _ALL_GATHER_V, flat_input(source), out.flat, _NO_OP,
                                 out.sizes, -1, seconds)
        return opts, steps, [t for outputs in output_lists for t in outputs], on_host, None

    @_collective('all_gather_into_tensor')
    def all_gather_single(self, output, input, opts=None):  # pylint: disable=redefined-builtin
        """See torch.distributed.all_gather_into_tensor."""
        return self._plan_all_gather_single([output], [input], opts)

    _allgather_base = all_gather_single

    @_collective('all_gather_into_tensor_coalesced')
    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        """Several all_gather_single in one call."""
        check_pairs('all_gather_into_tensor_coalesced', outputs, inputs)
        return self._plan_all_gather_single(outputs, inputs, opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _plan_all_gather_single(self, outputs, inputs, opts):
        opts = opts or c10d.AllgatherOptions()
        seconds = self._timeout_of(opts)
        on_host = not outputs[0].is_cuda

        def steps(written):
            if len(outputs) > 1 and on_host:
                yield self._agree_on('tensors', len(outputs), seconds)
            for output, source in zip(outputs, inputs):
                out = FlatOutput(output)
                written.append(out)
                yield functools.partial(self._run, _ALL_GATHER, flat_input(source), out.flat,
                                        _NO_OP, 0, -1, seconds)
        is_flat = len(outputs) == 1 and outputs[0].is_contiguous() and inputs[0].is_contiguous()
        collective = (_ALL_GATHER, flat_input(inputs[0]), flat_input(outputs[0]), _NO_OP, 0, -1,
                      seconds) if is_flat else None
        return opts, steps, outputs, on_host, collective

    @_collective('all_to_all_single')
    def all_to_all_single(self, output, input,  # pylint: disable=redefined-builtin
                          output_split_sizes, input_split_sizes, opts=None, timeout=None):
        """See torch.distributed.all_to_all_single."""
        if type(opts) is not c10d.AllToAllOptions:  # pylint: disable=unidiomatic-typecheck
            opts = options(c10d.AllToAllOptions, None, timeout)
        seconds = self._timeout_of(opts)
        sends = self._row_sizes('input', input, input_split_sizes)
        receives = self._row_sizes('output', output, output_split_sizes)
        ragged = bool(output_split_sizes or input_split_sizes) or sends != receives

        def steps(written):
            out = FlatOutput(output)
            written.append(out)
            if ragged:
                yield functools.partial(self._core.run_ragged, _ALL_TO_ALL_V, flat_input(input),
                                        out.flat, _NO_OP, 0, -1, (sends, receives), seconds)
            else:
                yield functools.partial(self._run, _ALL_TO_ALL, flat_input(input), out.flat, _NO_OP,
                                        0, -1, seconds)
        is_flat = not ragged and output.is_contiguous() and input.is_contiguous()
        collective = (_ALL_TO_ALL, flat_input(input), flat_input(output), _NO_OP, 0, -1,
                      seconds) if is_flat else None
        return opts, steps, [output], not output.is_cuda, collective

    alltoall_base = all_to_all_single

    def _row_sizes(self, name: str, tensor: torch.Tensor, splits: Sequence[int]) -> List[int]:
        """The number of elements for each rank, or from it; those of movable(tensor)."""
        extent = tensor.size(0) if tensor.dim() else 1
        if not splits:
            if extent % self._size:
                raise ValueError(f'all_to_all_single: dimension 0 of the {name} has {extent} '
                                 f'elements, expected a multiple of {self._size}')
            splits = [extent // self._size] * self._size
        if len(splits) != self._size or sum(splits) != extent:
            raise ValueError(f'all_to_all_single: the {name} has {extent} elements in dimension 0, '
                             f'expected {self._size} split sizes with this sum, got {list(splits)}')
        row = movable(tensor).numel() // extent if extent else 0
        return [size * row for size in splits]

    @_collective('all_to_all')
    def alltoall(self, output_tensors, input_tensors, opts=None, timeout=None):
        """See torch.distributed.all_to_all."""
        if type(opts) is not c10d.AllToAllOptions:  # pylint: disable=unidiomatic-typecheck
            opts = options(c10d.AllToAllOptions, None, timeout)
        seconds = self._timeout_of(opts)
        check_count('all_to_all', 'inputs', input_tensors, self._size)
        check_count('all_to_all', 'outputs', output_tensors, self._size)

        def steps(written):
            out = JoinedOutput(output_tensors)
            written.append(out)
            flat, sizes = join(input_tensors)
            yield functools.partial(self._core.run_ragged, _ALL_TO_ALL_V, flat, out.flat, _NO_OP, 0,
                                    -1, (sizes, out.sizes), seconds)
        return opts, steps, output_tensors, not output_tensors[0].is_cuda, None

    @_collective('barrier')
    def barrier(self, opts=None, timeout=None):
        """See torch.distributed.barrier."""
        if type(opts) is not c10d.BarrierOptions:  # pylint: disable=unidiomatic-typecheck
            opts = options(c10d.BarrierOptions, opts, timeout)
        seconds = self._timeout_of(opts)

        def steps(_):
            if self._on_gpu:
                self._core.await_streams(seconds)
            yield functools.partial(self._core.barrier, seconds)
        return opts, steps, (), True, None

"""The collectives of a process group, as PyTorch calls them."""

from typing import Any, Callable, List, Optional, Sequence

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

import cohort
from cohort.torch import sparse
from cohort.torch.call_arguments import check_count, check_sizes, in_list, options
from cohort.torch.flat import FlatOutput, JoinedOutput, flat_input, join, movable, reducible
from cohort.torch.reductions import reduction_of
from cohort.torch.work import CompletedWork, StreamWork

# The numbers of the collectives in the C++ library.
_ALL_REDUCE, _REDUCE, _BROADCAST, _ALL_GATHER, _REDUCE_SCATTER = 1, 2, 3, 4, 5
_ALL_TO_ALL, _GATHER, _SCATTER, _ALL_TO_ALL_V = 6, 7, 8, 12
_NO_OP = 1

_DONE = CompletedWork()


class Collectives:
    """The methods have the names and the arguments of torch._C._distributed_c10d.ProcessGroup.

    A call with `opts.asyncOp` false runs on the calling thread and returns when it is over. The
    group's CallQueue runs the others, in the order in which they were started. Work on GPUs is
    enqueued on the current stream by the calling thread.

    A subclass has the attributes _core, the group of the extension module; _calls, a CallQueue;
    _seconds, the timeout; _rank and _size; and _coalesced, the calls between _start_coalescing and
    _end_coalescing, or None.
    """

    # --- How a call runs.

    def _submit(self, opts: Any, name: str, call: Optional[Callable[[], None]],
                result: Sequence[torch.Tensor], on_host: bool = True,
                collective: Optional[tuple] = None) -> dist._Work:
        """Runs `call` now, or starts it.

        Args:
          result: the tensors that it writes.
          on_host: whether they are in host memory.
          collective: if the call is one collective of Cohort, the arguments of its `run`; it is
            then called in place of `call`.
        """
        self._sequence += 1
        calls = self._calls
        if collective is not None and not opts.asyncOp and not calls.busy and calls.last is None:
            try:
                self._run(*collective)
            except cohort.Error as error:
                raise self._explained(error, name, opts) from error
            return _DONE

        def explained():
            try:
                if collective is None:
                    call()
                else:
                    self._run(*collective)
            except cohort.Error as error:
                raise self._explained(error, name, opts) from error
        if on_host and opts.asyncOp:
            if collective is not None and not calls.busy:
                work = calls.start_collective(self._core.start(*collective), result,
                                              lambda error: self._explained(error, name, opts))
            else:
                work = calls.start(explained, result, lambda: self._describe(name))
            return self._issued(work)
        if calls.busy:
            if on_host:
                calls.start(explained, result, lambda: self._describe(name)).wait()
                return _DONE
            calls.start(lambda: None, (), lambda: self._describe(name)).wait()
        calls.settle()
        explained()
        if on_host or not opts.asyncOp:
            return CompletedWork(result) if opts.asyncOp else _DONE
        return self._issued(StreamWork(result, result[0].device, (call, collective)))

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

    # --- Reductions.

    def allreduce(self, tensors, opts=None, timeout=None, *, op=None):
        """See torch.distributed.all_reduce."""
        if type(opts) is not c10d.AllreduceOptions:  # pylint: disable=unidiomatic-typecheck
            opts = options(c10d.AllreduceOptions, opts, timeout, reduceOp=op)
            tensors = in_list(tensors)
        tensor, = tensors
        if tensor.is_sparse:
            return self.allreduce_sparse(tensors, opts)
        if tensor.requires_grad or tensor.dtype.is_complex:
            tensor = reducible(tensor)
        reduction = reduction_of(opts.reduceOp)
        seconds = self._timeout_of(opts)
        collective = (_ALL_REDUCE, tensor, tensor, reduction, -1, -1, seconds)
        return self._submit(opts, 'all_reduce', None, tensors, not tensor.is_cuda, collective)

    def allreduce_sparse(self, tensors, opts=None):
        """See torch.distributed.all_reduce, for sparse tensors in the COO layout: the sum."""
        opts = opts or c10d.AllreduceOptions()
        tensor, = tensors
        seconds = self._timeout_of(opts)
        if opts.reduceOp != dist.ReduceOp.SUM:
            raise ValueError('all_reduce of a sparse tensor: expected the reduction SUM')
        return self._submit(opts, 'all_reduce', lambda: sparse.all_reduce(
            self._core, self._size, tensor, seconds), tensors)

    def allreduce_coalesced(self, tensors, opts=None):
        """See torch.distributed.all_reduce_coalesced."""
        opts = opts or c10d.AllreduceCoalescedOptions()
        reduction = reduction_of(opts.reduceOp)
        seconds = self._timeout_of(opts)
        arrays = [reducible(tensor) for tensor in tensors]
        by_type = {}
        for array in arrays:
            by_type.setdefault(array.dtype, []).append(array)

        def call():
            for same in by_type.values():
                self._core.all_reduce_coalesced(same, same, reduction, seconds)
        return self._submit(opts, 'all_reduce_coalesced', call, tensors, not tensors[0].is_cuda)

    def reduce(self, tensors, opts=None, op=None, timeout=None, *, root=None):
        """See torch.distributed.reduce."""
        if type(opts) is not c10d.ReduceOptions:  # pylint: disable=unidiomatic-typecheck
            opts = options(c10d.ReduceOptions, op, timeout,
                            rootRank=opts if root is None else root)
            tensors = in_list(tensors)
        tensor = reducible(tensors[0])
        root = opts.rootRank
        out = tensor if root == self._rank else None
        reduction = reduction_of(opts.reduceOp)
        seconds = self._timeout_of(opts)
        collective = (_REDUCE, tensor, out, reduction, -1, root, seconds)
        return self._submit(opts, 'reduce', lambda: self._run(*collective), tensors,
                            not tensor.is_cuda, collective)

    def reduce_scatter(self, output_tensors, input_tensors, opts=None, timeout=None, *, op=None):
        """See torch.distributed.reduce_scatter."""
        if type(opts) is not c10d.ReduceScatterOptions:  # pylint: disable=unidiomatic-typecheck
            opts = options(c10d.ReduceScatterOptions, opts, timeout, reduceOp=op)
            if isinstance(output_tensors, torch.Tensor):
                output_tensors, input_tensors = [output_tensors], [input_tensors]
        output, = output_tensors
        inputs, = input_tensors
        check_count('reduce_scatter', 'inputs', inputs, self._size)
        check_sizes('reduce_scatter', inputs, output)
        return self._reduce_scatter('reduce_scatter', [output],
                                    [lambda: torch.cat([reducible(t).reshape(-1) for t in inputs])],
                                    opts)

    def reduce_scatter_single(self, output, input, opts=None):  # pylint: disable=redefined-builtin
        """See torch.distributed.reduce_scatter_tensor."""
        return self._reduce_scatter('reduce_scatter_tensor', [output],
                                    [lambda: reducible(input).reshape(-1)], opts,
                                    input.is_contiguous() and output.is_contiguous())

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=None):
        """Several reduce_scatter_single in one call."""
        return self._reduce_scatter(
            'reduce_scatter_tensor_coalesced', outputs,
            [lambda each=each: reducible(each).reshape(-1) for each in inputs], opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _reduce_scatter(self, name, outputs, flat_inputs, opts, is_flat=False):
        opts = opts or c10d.ReduceScatterOptions()
        reduction = reduction_of(opts.reduceOp)
        seconds = self._timeout_of(opts)

        def call():
            for output, flat in zip(outputs, flat_inputs):
                written = FlatOutput(reducible(output))
                self._run(_REDUCE_SCATTER, flat(), written.flat, reduction, 0, -1, seconds)
                written.finish()
        collective = (_REDUCE_SCATTER, flat_inputs[0](), reducible(outputs[0]).view(-1), reduction,
                      0, -1, seconds) if is_flat else None
        return self._submit(opts, name, call, outputs, not outputs[0].is_cuda, collective)

    # --- From one rank to all, and from all to one.

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
        collective = (_BROADCAST, None, array, _NO_OP, -1, root, seconds)
        return self._submit(opts, 'broadcast', None, tensors, not tensor.is_cuda, collective)

    def gather(self, output_tensors, input_tensors, opts=None, timeout=None, *, root=None):
        """See torch.distributed.gather."""
        if type(opts) is not c10d.GatherOptions:  # pylint: disable=unidiomatic-typecheck
            opts = options(c10d.GatherOptions, None, timeout,
                            rootRank=opts if root is None else root)
            output_tensors, input_tensors = [output_tensors], [input_tensors]
        root = opts.rootRank
        seconds = self._timeout_of(opts)
        source, = input_tensors
        outputs = output_tensors[0] if output_tensors and self._rank == root else []
        if self._rank == root:
            check_count('gather', 'outputs', outputs, self._size)
            check_sizes('gather', outputs, source)

        def call():
            written = JoinedOutput(outputs) if outputs else None
            self._run(_GATHER, flat_input(source), None if written is None else written.flat,
                      _NO_OP, 0, root, seconds)
            if written is not None:
                written.finish()
        return self._submit(opts, 'gather', call, outputs, not source.is_cuda)

    def scatter(self, output_tensors, input_tensors, opts=None, timeout=None, *, root=None):
        """See torch.distributed.scatter."""
        if type(opts) is not c10d.ScatterOptions:  # pylint: disable=unidiomatic-typecheck
            opts = options(c10d.ScatterOptions, None, timeout,
                            rootRank=opts if root is None else root)
            output_tensors, input_tensors = in_list(output_tensors), [input_tensors]
        root = opts.rootRank
        seconds = self._timeout_of(opts)
        output, = output_tensors
        inputs = input_tensors[0] if input_tensors and self._rank == root else []
        if self._rank == root:
            check_count('scatter', 'inputs', inputs, self._size)
            check_sizes('scatter', inputs, output)

        def call():
            written = FlatOutput(output)
            self._run(_SCATTER, join(inputs)[0] if inputs else None, written.flat, _NO_OP, 0, root,
                      seconds)
            written.finish()
        return self._submit(opts, 'scatter', call, output_tensors, not output.is_cuda)

    # --- From all to all.

    def allgather(self, output_tensors, input_tensors, opts=None, timeout=None):
        """See torch.distributed.all_gather."""
        if type(opts) is not c10d.AllgatherOptions:  # pylint: disable=unidiomatic-typecheck
            opts = options(c10d.AllgatherOptions, None, timeout)
            if isinstance(input_tensors, torch.Tensor):
                output_tensors, input_tensors = [output_tensors], [input_tensors]
        outputs, = output_tensors
        source, = input_tensors
        check_count('all_gather', 'outputs', outputs, self._size)
        check_sizes('all_gather', outputs, source)
        work = self._all_gather('all_gather', [outputs], [source], opts)
        if opts.asyncOp:
            work.value = lambda: [torch.stack(outputs)]  # as with NCCL
        return work

    def allgather_coalesced(self, output_lists, inputs, opts=None):
        """See torch.distributed.all_gather_coalesced."""
        opts = opts or c10d.AllgatherOptions()
        check_count('all_gather_coalesced', 'output lists', output_lists, self._size)
        return self._all_gather('all_gather_coalesced',
                                [[each[i] for each in output_lists] for i in range(len(inputs))],
                                inputs, opts)

    def _all_gather(self, name, output_lists: List[List[torch.Tensor]], inputs, opts):
        seconds = self._timeout_of(opts)

        def call():
            for outputs, source in zip(output_lists, inputs):
                written = JoinedOutput(outputs)
                self._run(_ALL_GATHER, flat_input(source), written.flat, _NO_OP, 0, -1, seconds)
                written.finish()
        return self._submit(opts, name, call, [t for outputs in output_lists for t in outputs],
                            not inputs[0].is_cuda)

    def all_gather_single(self, output, input, opts=None):  # pylint: disable=redefined-builtin
        """See torch.distributed.all_gather_into_tensor."""
        return self._all_gather_single('all_gather_into_tensor', [output], [input], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        """Several all_gather_single in one call."""
        return self._all_gather_single('all_gather_into_tensor_coalesced', outputs, inputs, opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _all_gather_single(self, name, outputs, inputs, opts):
        opts = opts or c10d.AllgatherOptions()
        seconds = self._timeout_of(opts)

        def call():
            for output, source in zip(outputs, inputs):
                written = FlatOutput(output)
                self._run(_ALL_GATHER, flat_input(source), written.flat, _NO_OP, 0, -1, seconds)
                written.finish()
        is_flat = len(outputs) == 1 and outputs[0].is_contiguous() and inputs[0].is_contiguous()
        collective = (_ALL_GATHER, flat_input(inputs[0]), flat_input(outputs[0]), _NO_OP, 0, -1,
                      seconds) if is_flat else None
        return self._submit(opts, name, call, outputs, not outputs[0].is_cuda, collective)

    def all_to_all_single(self, output, input,  # pylint: disable=redefined-builtin
                          output_split_sizes, input_split_sizes, opts=None, timeout=None):
        """See torch.distributed.all_to_all_single."""
        if type(opts) is not c10d.AllToAllOptions:  # pylint: disable=unidiomatic-typecheck
            opts = options(c10d.AllToAllOptions, None, timeout)
        seconds = self._timeout_of(opts)
        ragged = bool(output_split_sizes or input_split_sizes)
        sends = self._row_sizes('input', input, input_split_sizes)
        receives = self._row_sizes('output', output, output_split_sizes)

        def call():
            written = FlatOutput(output)
            if ragged:
                self._core.run_ragged(_ALL_TO_ALL_V, flat_input(input), written.flat, _NO_OP, 0, -1,
                                      (sends, receives), seconds)
            else:
                self._run(_ALL_TO_ALL, flat_input(input), written.flat, _NO_OP, 0, -1, seconds)
            written.finish()
        is_flat = not ragged and output.is_contiguous() and input.is_contiguous()
        collective = (_ALL_TO_ALL, flat_input(input), flat_input(output), _NO_OP, 0, -1,
                      seconds) if is_flat else None
        return self._submit(opts, 'all_to_all_single', call, [output], not output.is_cuda,
                            collective)

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

    def alltoall(self, output_tensors, input_tensors, opts=None, timeout=None):
        """See torch.distributed.all_to_all."""
        if type(opts) is not c10d.AllToAllOptions:  # pylint: disable=unidiomatic-typecheck
            opts = options(c10d.AllToAllOptions, None, timeout)
        seconds = self._timeout_of(opts)
        check_count('all_to_all', 'inputs', input_tensors, self._size)
        check_count('all_to_all', 'outputs', output_tensors, self._size)

        def call():
            written = JoinedOutput(output_tensors)
            flat, sizes = join(input_tensors)
            self._core.run_ragged(_ALL_TO_ALL_V, flat, written.flat, _NO_OP, 0, -1,
                                  (sizes, written.sizes), seconds)
            written.finish()
        return self._submit(opts, 'all_to_all', call, output_tensors,
                            not output_tensors[0].is_cuda)

    def barrier(self, opts=None, timeout=None):
        """See torch.distributed.barrier."""
        if type(opts) is not c10d.BarrierOptions:  # pylint: disable=unidiomatic-typecheck
            opts = options(c10d.BarrierOptions, opts, timeout)
        seconds = self._timeout_of(opts)

        def call():
            if self._on_gpu:
                self._core.await_streams(seconds)
            self._core.barrier(seconds)
        return self._submit(opts, 'barrier', call, ())

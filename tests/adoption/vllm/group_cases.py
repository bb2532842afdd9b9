#!/usr/bin/env python3
"""A rank that calls the methods of vLLM's own GroupCoordinator, and checks their results.

    group_cases.py RANK RANKS STORE      # STORE: a file that does not exist yet

`run.py groups` starts all ranks.
"""

import sys

import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.platforms import current_platform


def part(rank, *shape):
    """The tensor of a rank."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(rank))


def cases(group, rank, ranks):
    """Pairs of a method's name and whether its result is right."""
    each = [part(r, 6, 4, 8) for r in range(ranks)]
    own, total = each[rank], sum(each)
    yield 'all_reduce', torch.allclose(group.all_reduce(own), total)
    yield 'all_reduce leaves its input', torch.equal(own, part(rank, 6, 4, 8))
    half = own.to(torch.bfloat16)
    yield 'all_reduce of bfloat16', torch.allclose(
        group.all_reduce(half), sum(tensor.to(torch.bfloat16) for tensor in each), atol=.1)
    for dim in (0, 1, -1):
        joined, chunk = torch.cat(each, dim), total.chunk(ranks, dim)[rank]
        yield f'all_gather, dim {dim}', torch.equal(group.all_gather(own, dim), joined)
        yield f'reduce_scatter, dim {dim}', torch.allclose(group.reduce_scatter(own, dim), chunk)
        gathered = group.gather(own, 1, dim)
        yield f'gather, dim {dim}', gathered is None if rank != 1 else torch.equal(
            gathered, joined)
    sizes = [r + 1 for r in range(ranks)]
    ragged = [part(r, size, 3) for r, size in enumerate(sizes)]
    yield 'all_gatherv', torch.equal(group.all_gatherv(ragged[rank], 0, sizes), torch.cat(ragged))
    both = group.all_gatherv([ragged[rank], ragged[rank]], 0, sizes)
    yield 'all_gatherv of a list', all(torch.equal(found, torch.cat(ragged)) for found in both)
    whole = [part(r, sum(sizes), 3) for r in range(ranks)]
    yield 'reduce_scatterv', torch.allclose(
        group.reduce_scatterv(whole[rank], 0, sizes), sum(whole).split(sizes)[rank])
    yield 'broadcast', torch.equal(group.broadcast(own.clone(), 1), each[1])
    yield 'broadcast_object', group.broadcast_object({'from': rank}, 0) == {'from': 0}
    yield 'broadcast_object_list', group.broadcast_object_list([f'of {rank}'], 1) == ['of 1']
    values = group.broadcast_tensor_dict({'own': own, 'number': rank} if rank == 0 else None, 0)
    yield 'broadcast_tensor_dict', torch.equal(values['own'], each[0]) and values['number'] == 0
    if rank == 0:
        group.send(own, 1)
        group.send_tensor_dict({'hidden': own, 'residual': half}, 1)
        yield 'isend_tensor_dict', group.isend_tensor_dict({'hidden': own}, 1) == []
    elif rank == 1:
        yield 'recv', torch.equal(group.recv(own.shape, own.dtype, 0), each[0])
        values = group.recv_tensor_dict(0)
        yield 'recv_tensor_dict', torch.equal(values['hidden'], each[0]) and \
            torch.equal(values['residual'], each[0].to(torch.bfloat16))
        yield 'recv_tensor_dict again', torch.equal(group.recv_tensor_dict(0)['hidden'], each[0])
    compiled = torch.compile(lambda x: group.all_reduce(x * 2) + x, fullgraph=True, backend='eager')
    yield 'all_reduce in torch.compile', torch.allclose(compiled(own), 2 * total + own)
    group.barrier()


def main(rank, ranks, store):
    """Prints a line for each case; the exit status is 1 if one failed."""
    failed = 0
    with set_current_vllm_config(VllmConfig()):
        parallel_state.init_distributed_environment(
            ranks, rank, f'file://{store}', rank, current_platform.dist_backend)
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=ranks)
        for name, passed in cases(parallel_state.get_tp_group(), rank, ranks):
            failed += not passed
            print(f'{"yes" if passed else "NO":>4}  rank {rank}: {name}', flush=True)
        parallel_state.destroy_model_parallel()
        parallel_state.destroy_distributed_environment()
    sys.exit(failed > 0)


if __name__ == '__main__':
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])

"""The regions of cohort.regions, and the same calls in one process."""

import torch

from cohort import regions


def ragged(size):
    """By rank, its rows: 2, 1, 0."""
    return [2 - rank for rank in range(size)]


def rows_between(source, destination):
    return (source + 2 * destination) % 3


def to_hidden(inputs):
    size = len(inputs)
    return [torch.cat([part.flatten(0, -2).chunk(size, -1)[rank] for part in inputs])
            for rank in range(size)]


def to_sequence(inputs):
    size = len(inputs)
    return [torch.cat([part.flatten(0, -2).chunk(size, 0)[rank] for part in inputs], -1)
            for rank in range(size)]


def exchanged(inputs, rows):
    """rows(r, s): the rows that rank r sends to rank s."""
    size = len(inputs)
    parts = [part.split([rows(rank, to) for to in range(size)]) for rank, part in enumerate(inputs)]
    return [torch.cat([parts[source][rank] for source in range(size)]) for rank in range(size)]


class Case:
    """A region, and the same in one process.

    region(tensor, group): the call.
    model(inputs): the results of all ranks.
    shape(rank, size): of a rank's input.
    same_input, same_result: that tensor and its gradient are the same on all ranks.
    """

    def __init__(self, region, model, shape, same_input=False, same_result=False):
        self.region, self.model, self.shape = region, model, shape
        self.same_input, self.same_result = same_input, same_result


def fixed(*shape):
    return lambda rank, size: shape


def last(part):
    return lambda rank, size: (2, 3, part * size)


def first(part):
    return lambda rank, size: (part * size, 2, 3)


def own_rows(rank, size):
    return (ragged(size)[rank], 3)


def all_rows(rank, size):  # pylint: disable=unused-argument
    return (sum(ragged(size)), 3)


def joined(dim):
    return lambda inputs: [torch.cat(inputs, dim)] * len(inputs)


def cut(dim):
    return lambda inputs: [part.chunk(len(inputs), dim)[rank] for rank, part in enumerate(inputs)]


def summed(inputs):
    return [sum(inputs)] * len(inputs)


def sum_cut(dim):
    return lambda inputs: list(sum(inputs).chunk(len(inputs), dim))


def exchange_ragged(tensor, group, only_output=False):
    ranks = range(group.size)
    return regions.all_to_all(
        tensor, group,
        input_sizes=None if only_output else [rows_between(group.rank, to) for to in ranks],
        output_sizes=[2 * (source + 1) if only_output else rows_between(source, group.rank)
                      for source in ranks])


CASES = {
    'copy': Case(regions.copy_to_tensor_parallel, list, fixed(2, 3, 4), same_input=True),
    'reduce': Case(regions.reduce_from_tensor_parallel, summed, fixed(2, 3, 4), same_result=True),
    'scatter': Case(regions.scatter_to_tensor_parallel, cut(-1), last(2), same_input=True),
    'gather': Case(regions.gather_from_tensor_parallel, joined(-1), fixed(2, 3, 4),
                   same_result=True),
    'sequence scatter': Case(regions.scatter_to_sequence_parallel, cut(0), first(2),
                             same_input=True),
    'sequence gather': Case(regions.gather_from_sequence_parallel, joined(0), fixed(2, 3, 4)),
    'sequence gather, one gradient': Case(
        lambda tensor, group: regions.gather_from_sequence_parallel(
            tensor, group, tensor_parallel_output_grad=False),
        joined(0), fixed(2, 3, 4), same_result=True),
    'ragged sequence gather': Case(
        lambda tensor, group: regions.gather_from_sequence_parallel(
            tensor, group, sizes=ragged(group.size)), joined(0), own_rows),
    'ragged sequence gather, one gradient': Case(
        lambda tensor, group: regions.gather_from_sequence_parallel(
            tensor, group, tensor_parallel_output_grad=False, sizes=ragged(group.size)),
        joined(0), own_rows, same_result=True),
    'sequence reduce_scatter': Case(regions.reduce_scatter_to_sequence_parallel, sum_cut(0),
                                    first(2)),
    'ragged sequence reduce_scatter': Case(
        lambda tensor, group: regions.reduce_scatter_to_sequence_parallel(
            tensor, group, sizes=ragged(group.size)),
        lambda inputs: list(sum(inputs).split(ragged(len(inputs)))), all_rows),
    'all_gather last': Case(regions.all_gather_last_dim_from_tensor_parallel, joined(-1),
                            fixed(2, 3, 4)),
    'reduce_scatter last': Case(regions.reduce_scatter_last_dim_to_tensor_parallel, sum_cut(-1),
                                last(2)),
    'all_to_all': Case(
        regions.all_to_all, lambda inputs: exchanged(inputs, lambda *_: 2), first(2)),
    'ragged all_to_all': Case(
        exchange_ragged, lambda inputs: exchanged(inputs, rows_between),
        lambda rank, size: (sum(rows_between(rank, to) for to in range(size)), 3)),
    'all_to_all, input in equal parts': Case(
        lambda tensor, group: exchange_ragged(tensor, group, only_output=True),
        lambda inputs: exchanged(inputs, lambda source, _: 2 * (source + 1)),
        lambda rank, size: (2 * (rank + 1) * size, 3)),
    'sequence to hidden': Case(regions.sequence_to_hidden, to_hidden, last(2)),
    'sequence to hidden, two dimensions': Case(regions.sequence_to_hidden, to_hidden,
                                               lambda rank, size: (3, 2 * size)),
    'hidden to sequence': Case(regions.hidden_to_sequence, to_sequence, first(2)),
    'hidden to sequence, two dimensions': Case(regions.hidden_to_sequence, to_sequence,
                                               lambda rank, size: (2 * size, 3)),
    'one dimension': Case(regions.all_gather_last_dim_from_tensor_parallel, joined(0),
                          fixed(3)),
    'empty parts': Case(regions.reduce_scatter_last_dim_to_tensor_parallel, sum_cut(-1), last(0)),
    'no rows': Case(regions.gather_from_sequence_parallel, joined(0), fixed(0, 3)),
}


def random(shape, seed):
    """Small integers: sums of them are exact in every type."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-4, 5, tuple(shape), generator=generator).double()


def inputs_of(case, size):
    return [random(case.shape(rank, size), 0 if case.same_input else rank) for rank in range(size)]


def gradients_of(case, results):
    return [random(result.shape, 100 if case.same_result else 100 + rank)
            for rank, result in enumerate(results)]


def in_one_process(case, size):
    """Returns inputs, results, gradients of the results, and gradients of the inputs, by rank."""
    inputs = inputs_of(case, size)
    leaves = [part.clone().requires_grad_() for part in inputs]
    results = case.model([leaves[0]] * size if case.same_input else leaves)
    gradients = gradients_of(case, results)
    # A result that all ranks have counts once.
    counted = slice(0, 1) if case.same_result else slice(None)
    torch.autograd.backward(results[counted], gradients[counted])
    back = [(leaves[0] if case.same_input else leaf).grad for leaf in leaves]
    return inputs, [result.detach() for result in results], gradients, back

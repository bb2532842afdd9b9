"""Regions of tensor-parallel layers: values and gradients are those of one process."""

import contextlib
import subprocess
import sys
import threading

import pytest

import cohort
from testing.coordinator import coordinator
from testing.fixtures import joined_groups, run

torch = pytest.importorskip('torch', reason='PyTorch is not installed for this Python')

# pylint: disable=wrong-import-position
from cohort import regions
from testing.region_cases import CASES, gradients_of, in_one_process, inputs_of, random

SIZES = (1, 2, 3)


@pytest.fixture(scope='module', name='groups_of')
def _groups_of():
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(coordinator())
        yield {size: stack.enter_context(joined_groups(f'regions-{size}', size, address))
               for size in SIZES}


@pytest.fixture(name='groups')
def _groups(groups_of):
    return groups_of[2]


@pytest.mark.parametrize('dtype', ['float32', 'float64', 'bfloat16', 'float16'])
@pytest.mark.parametrize('size', SIZES)
@pytest.mark.parametrize('name', CASES)
def test_values_and_gradients_are_those_of_one_process(groups_of, name, size, dtype):
    case, dtype = CASES[name], getattr(torch, dtype)
    inputs, results, gradients, back = in_one_process(case, size)
    def body(group, rank):
        leaf = inputs[rank].to(dtype).requires_grad_()
        result = case.region(leaf, group)
        gradient = gradients[rank].to(dtype)
        result.backward(gradient)
        assert torch.equal(leaf.detach(), inputs[rank].to(dtype)), 'the input is changed'
        assert torch.equal(gradient, gradients[rank].to(dtype)), 'the gradient is changed'
        assert result.dtype == leaf.grad.dtype == dtype and result.is_contiguous()
        assert torch.equal(result.detach().double(), results[rank])
        assert torch.equal(leaf.grad.double(), back[rank])
    run(groups_of[size], body)


@pytest.mark.parametrize('size', SIZES)
@pytest.mark.parametrize('name', CASES)
def test_backward_is_the_adjoint_of_forward(groups_of, name, size):
    case = CASES[name]
    inputs = inputs_of(case, size)
    gradients = gradients_of(case, case.model(inputs))
    def body(group, rank):
        leaf = inputs[rank].clone().requires_grad_()
        result = case.region(leaf, group)
        result.backward(gradients[rank])
        return ((result * gradients[rank]).sum().item(), (leaf * leaf.grad).sum().item())
    products = run(groups_of[size], body)
    left = [product for product, _ in products][:1 if case.same_result else size]
    right = [product for _, product in products][:1 if case.same_input else size]
    assert sum(left) == sum(right)


@pytest.mark.parametrize('name', CASES)
def test_inputs_and_gradients_of_any_strides(groups, name):
    case = CASES[name]
    inputs, results, gradients, back = in_one_process(case, 2)
    def strided(tensor):
        reverse = tuple(range(tensor.dim()))[::-1]
        wide = torch.full([2 * extent for extent in tensor.shape[::-1]], 7.0, dtype=tensor.dtype)
        view = wide.permute(reverse)[tuple([slice(None, None, 2)] * tensor.dim())]
        return view.copy_(tensor)
    def body(group, rank):
        leaf = strided(inputs[rank]).requires_grad_()
        result = case.region(leaf, group)
        result.backward(strided(gradients[rank]))
        assert torch.equal(result.detach(), results[rank])
        assert torch.equal(leaf.grad, back[rank])
    run(groups, body)


def test_expanded_gradients_are_summed(groups):
    def body(group, rank):
        leaf = torch.ones(2, 4, requires_grad=True)
        regions.all_gather_last_dim_from_tensor_parallel(leaf, group).sum().backward()
        regions.sequence_to_hidden(leaf, group).sum().backward()
        return leaf.grad.tolist()
    assert run(groups, body) == [[[3.0] * 4] * 2] * 2


def test_lazily_conjugated_and_negated_values_are_read_as_such(groups):
    def body(group, rank):
        leaf = torch.tensor([[1 + 2j, 3 + 4j]], requires_grad=True)
        result = regions.gather_from_tensor_parallel(leaf.conj(), group)
        assert torch.equal(result.detach(), torch.tensor([[1 - 2j, 3 - 4j] * 2]))
        result.conj().backward(torch.tensor([[5j, 6j] * 2]))  # PyTorch's gradients are conjugate
        assert torch.equal(leaf.grad, torch.tensor([[5j, 6j]]))
        negated = torch.tensor([1 + 2j]).conj().imag
        assert regions.reduce_from_tensor_parallel(negated, group).tolist() == [-4]
        assert regions.scatter_to_tensor_parallel(leaf.detach().conj(), group).tolist() == [
            [[1 - 2j, 3 - 4j][rank]]]
    run(groups, body)


# --- Autograd.

def test_results_require_grad_if_the_input_does(groups):
    def body(group, rank):
        for case in CASES.values():
            tensor = inputs_of(case, 2)[rank]
            assert not case.region(tensor, group).requires_grad
            with torch.no_grad():
                assert not case.region(tensor.clone().requires_grad_(), group).requires_grad
            assert case.region(tensor.clone().requires_grad_(), group).requires_grad
    run(groups, body)


def test_integers_are_gathered(groups):
    def body(group, rank):
        return regions.gather_from_tensor_parallel(torch.tensor([rank]), group).tolist()
    assert run(groups, body) == [[0, 1]] * 2


def test_identities_copy_nothing_and_slices_do(groups):
    def body(group, rank):
        tensor = torch.ones(2, 2)
        assert regions.copy_to_tensor_parallel(tensor, group).data_ptr() == tensor.data_ptr()
        part = regions.scatter_to_sequence_parallel(tensor, group)
        part.fill_(5)
        assert tensor.tolist() == [[1, 1], [1, 1]]
    run(groups, body)


def test_results_of_collectives_and_slices_may_be_changed_in_place(groups):
    def body(group, rank):
        for name, case in CASES.items():
            if name == 'copy':
                continue
            leaf = inputs_of(case, 2)[rank].requires_grad_()
            result = case.region(leaf, group)
            gradient = torch.ones_like(result)
            result.mul_(2).backward(gradient)
            once = inputs_of(case, 2)[rank].requires_grad_()
            case.region(once, group).backward(2 * gradient)
            assert torch.equal(leaf.grad, once.grad), name
    run(groups, body)


class NoGradient(torch.autograd.Function):  # pylint: disable=abstract-method
    """Returns None as the gradient."""

    @staticmethod
    def forward(ctx, tensor):  # pylint: disable=arguments-differ,unused-argument
        return tensor.clone()

    @staticmethod
    def backward(ctx, gradient):  # pylint: disable=arguments-differ,unused-argument
        return None


def test_a_rank_without_a_gradient_contributes_zeros(groups):
    def body(group, rank):
        leaf = torch.ones(2, requires_grad=True)
        result = regions.copy_to_tensor_parallel(leaf, group)
        (NoGradient.apply(result) if rank == 0 else 3 * result).sum().backward()
        return leaf.grad.tolist()
    assert run(groups, body) == [[3, 3]] * 2


def test_second_derivatives_raise(groups):
    def body(group, rank):
        leaf = torch.ones(2, requires_grad=True)
        loss = (regions.reduce_from_tensor_parallel(leaf, group) ** 2).sum()
        gradient, = torch.autograd.grad(loss, leaf, create_graph=True)
        with pytest.raises(RuntimeError, match='once_differentiable'):
            gradient.sum().backward()
    run(groups, body)


def test_backward_runs_on_the_calling_thread(groups):
    def body(group, rank):
        threads = []
        leaf = torch.ones(2, requires_grad=True)
        leaf.register_hook(lambda gradient: threads.append(threading.get_ident()))
        regions.copy_to_tensor_parallel(leaf, group).sum().backward()
        assert threads == [threading.get_ident()]
    run(groups, body)


def test_sizes_may_change_after_the_call(groups):
    def body(group, rank):
        sizes = [1, 2]
        leaf = torch.ones(sizes[rank], 1, requires_grad=True)
        result = regions.gather_from_sequence_parallel(leaf, group, sizes=sizes)
        sizes[:] = [7, 7, 7]
        result.sum().backward()
        return leaf.grad.tolist()
    assert run(groups, body) == [[[2]], [[2], [2]]]


def test_regions_save_no_tensors(groups):
    def body(group, rank):
        for case in CASES.values():
            result = case.region(inputs_of(case, 2)[rank].requires_grad_(), group)
            assert getattr(result.grad_fn, 'saved_tensors', ()) == ()
    run(groups, body)


def test_the_package_does_not_import_torch():
    program = 'import cohort, sys; sys.exit("torch" in sys.modules)'
    assert subprocess.run([sys.executable, '-c', program], check=False).returncode == 0


# --- Layers.

def test_sequence_to_hidden_and_back_is_the_identity(groups_of):
    for groups in groups_of.values():
        def body(group, rank):
            tensor = random((4, 6), rank)
            hidden = regions.sequence_to_hidden(tensor, group)
            assert torch.equal(regions.hidden_to_sequence(hidden, group), tensor)
        run(groups, body)


BATCH, WIDTH, HIDDEN = 6, 5, 12


def mlp(x, first_weight, second_weight, enter, leave):
    """Two layers: the weights of the first are cut by columns, those of the second by rows."""
    return leave(torch.relu(enter(x) @ first_weight) @ second_weight)


def mlp_in_one_process():
    torch.manual_seed(1)
    x, one, two = (torch.randn(shape, dtype=torch.float64, requires_grad=True)
                   for shape in ((BATCH, WIDTH), (WIDTH, HIDDEN), (HIDDEN, WIDTH)))
    same = lambda tensor: tensor
    loss = (mlp(x, one, two, same, same) ** 2).sum()
    loss.backward()
    return x, one, two, loss


@pytest.mark.parametrize('size', SIZES)
@pytest.mark.parametrize('is_sequence_parallel', [False, True])
def test_a_tensor_parallel_mlp_has_the_loss_and_gradients_of_one_process(
        groups_of, size, is_sequence_parallel):
    whole_x, whole_one, whole_two, whole_loss = mlp_in_one_process()
    def part(tensor, rank, dim):
        return tensor.detach().chunk(size, dim)[rank]
    def body(group, rank):
        one = part(whole_one, rank, 1).clone().requires_grad_()
        two = part(whole_two, rank, 0).clone().requires_grad_()
        if is_sequence_parallel:
            x = part(whole_x, rank, 0).clone().requires_grad_()
            y = mlp(x, one, two, lambda t: regions.gather_from_sequence_parallel(t, group),
                    lambda t: regions.reduce_scatter_to_sequence_parallel(t, group))
            loss = regions.reduce_from_tensor_parallel((y ** 2).sum(), group)
        else:
            x = whole_x.detach().clone().requires_grad_()
            y = mlp(x, one, two, lambda t: regions.copy_to_tensor_parallel(t, group),
                    lambda t: regions.reduce_from_tensor_parallel(t, group))
            loss = (y ** 2).sum()
        loss.backward()
        close = lambda a, b: torch.allclose(a, b, rtol=1e-12, atol=1e-12)
        assert close(loss.detach(), whole_loss.detach())
        assert close(one.grad, part(whole_one.grad, rank, 1))
        assert close(two.grad, part(whole_two.grad, rank, 0))
        assert close(x.grad, part(whole_x.grad, rank, 0) if is_sequence_parallel else whole_x.grad)
    run(groups_of[size], body)

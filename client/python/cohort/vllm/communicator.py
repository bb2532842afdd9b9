"""vLLM's device communicator on a group of Cohort."""

from typing import Any, Dict, List, Optional, Sequence, Union

import torch
from vllm.distributed.device_communicators.base_device_communicator import DeviceCommunicatorBase

import cohort


class Communicator(DeviceCommunicatorBase):
    """The collectives of vLLM's GroupCoordinator, whose device group has the backend "cohort".

    The methods are vLLM's. Ranks are ranks in the group. Each result is a new tensor, because
    vLLM's operators must not return their input. The errors are those of cohort.Group.
    """

    def __init__(self, cpu_group: Any, device: Optional[torch.device] = None,
                 device_group: Any = None, unique_name: str = '', *args: Any, **kwargs: Any):
        super().__init__(cpu_group, device, device_group, unique_name, *args, **kwargs)
        self._group: cohort.Group = getattr(device_group, 'cohort_group', None)
        if self._group is None:
            raise cohort.InvalidArgument(
                f'communicator of group {unique_name}: expected a device group of the backend '
                f'"cohort", got {type(device_group).__name__}')
        if self.use_all2all:
            raise cohort.Unimplemented(
                f'communicator of group {unique_name}: tokens of several data-parallel ranks do '
                'not travel to experts yet; run without --enable-expert-parallel')
        # vLLM sends the tensors between pipeline stages by the methods below.
        self.supports_tensor_dict = True

    # --- Collectives.

    def all_reduce(self, input_: torch.Tensor) -> torch.Tensor:
        """The sum of all ranks' tensors."""
        return self._group.all_reduce(input_)

    def all_gather(self, input_: torch.Tensor, dim: int = -1) -> torch.Tensor:
        """All ranks' tensors concatenated along `dim`, by rank."""
        return self._group.all_gather(input_, dim=dim % input_.dim())

    def all_gatherv(self, input_: Union[torch.Tensor, List[torch.Tensor]], dim: int = 0,
                    sizes: Optional[Sequence[int]] = None
                    ) -> Union[torch.Tensor, List[torch.Tensor]]:
        """As all_gather. `sizes` are the extents along `dim`, by rank; None: they are equal."""
        if isinstance(input_, list):
            return [self.all_gatherv(each, dim, sizes) for each in input_]
        if sizes is None:
            return self.all_gather(input_, dim)
        return self._group.all_gather_v(input_, sizes, dim=dim % input_.dim())

    def reduce_scatter(self, input_: torch.Tensor, dim: int = -1) -> torch.Tensor:
        """This rank's part along `dim` of the sum of all ranks' tensors."""
        return self._group.reduce_scatter(input_, dim=dim % input_.dim())

    def reduce_scatterv(self, input_: torch.Tensor, dim: int = -1,
                        sizes: Optional[Sequence[int]] = None) -> torch.Tensor:
        """As reduce_scatter. `sizes` are the extents along `dim` of the parts, by rank."""
        if sizes is None:
            return self.reduce_scatter(input_, dim)
        return self._group.reduce_scatter_v(input_, sizes, dim=dim % input_.dim())

    def gather(self, input_: torch.Tensor, dst: int = 0, dim: int = -1) -> Optional[torch.Tensor]:
        """As all_gather, on rank `dst`; the other ranks get None."""
        return self._group.gather(input_, dst, dim=dim % input_.dim())

    def broadcast(self, tensor: torch.Tensor, src: int = 0) -> torch.Tensor:
        """Every rank's tensor gets the elements of rank `src`'s."""
        return self._group.broadcast(tensor, src)

    # --- Between two ranks: by default to the next rank, and from the previous one.

    def send(self, tensor: torch.Tensor, dst: Optional[int] = None) -> None:
        """Sends a tensor. Returns when it may be used again."""
        self._group.send(tensor, self._neighbour(dst, 1))

    def recv(self, size: torch.Size, dtype: torch.dtype, src: Optional[int] = None) -> torch.Tensor:
        """Receives a tensor of this size and type."""
        out = torch.empty(size, dtype=dtype, device=self.device)
        return self._group.receive(out, self._neighbour(src, -1))

    def send_tensor_dict(self, tensor_dict: Dict[str, Any], dst: int) -> None:
        """Sends tensors and plain values by name."""
        self._group.send_map(tensor_dict, dst)

    def recv_tensor_dict(self, src: int) -> Dict[str, Any]:
        """Receives what the other rank passed to send_tensor_dict."""
        return self._group.receive_map(src, tensors='torch')

    def _neighbour(self, rank: Optional[int], step: int) -> int:
        return (self.rank_in_group + step) % self.world_size if rank is None else rank

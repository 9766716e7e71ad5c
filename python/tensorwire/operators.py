"""torch.ops.tensorwire.*: what a model calls, also under torch.compile and in CUDA graphs.

    join("tp", communicator)
    torch.ops.tensorwire.all_reduce(x, "tp")                            a new tensor
    torch.ops.tensorwire.all_reduce_(x, "tp")                           in place
    torch.ops.tensorwire.all_gather(x, "tp")                            [n, ...] -> [ranks * n, ...]
    torch.ops.tensorwire.reduce_scatter(x, "tp")                        [ranks * n, ...] -> [n, ...], summed
    torch.ops.tensorwire.fused_allreduce_rmsnorm(x, residual, weight, eps, "tp") -> (norm, residual)

A name stands for a communicator, as in PyTorch's functional collectives; groups of the torch.distributed backend are here under
their group_name. Types: fp32, fp16, bf16, int32. There is no backward: these are operators of inference.
"""
import torch

from tensorwire import tensors

_communicators = {}


def join(name, communicator):
    """Gives `communicator` a name for the operators. A later one of the same name takes its place."""
    _communicators[name] = communicator


def leave(communicator):
    """Takes its names away: before it is destroyed."""
    for name in [name for name, known in _communicators.items() if known is communicator]:
        del _communicators[name]


def _named(name):
    found = _communicators.get(name)
    if found is None:
        raise ValueError(f'tensorwire has no group "{name}": call tensorwire.operators.join("{name}", communicator); there are: '
                         f'{", ".join(sorted(_communicators)) or "none"}')
    return found


def _checked(x):
    if x.dtype not in tensors.TYPES:
        raise TypeError(f"tensorwire reduces no {x.dtype}; it does {', '.join(map(str, tensors.TYPES))}")
    return x.contiguous()


@torch.library.custom_op("tensorwire::all_reduce", mutates_args=())
def all_reduce(x: torch.Tensor, group: str) -> torch.Tensor:
    """The sum over the ranks of the group, the same bits on all of them."""
    x = _checked(x)
    result = torch.empty_like(x)
    tensors.all_reduce(_named(group), x, result)
    return result


@all_reduce.register_fake
def _(x, group):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.custom_op("tensorwire::all_reduce_", mutates_args=("x",))
def all_reduce_(x: torch.Tensor, group: str) -> None:
    """The same, into `x`."""
    whole = _checked(x)
    tensors.all_reduce(_named(group), whole, whole)
    if whole is not x:
        x.copy_(whole)


@all_reduce_.register_fake
def _(x, group):
    return None


@torch.library.custom_op("tensorwire::all_gather", mutates_args=())
def all_gather(x: torch.Tensor, group: str) -> torch.Tensor:
    """Every rank's `x`, by rank, along the first dimension. Of any type."""
    comm = _named(group)
    row = tensors.flat(x.contiguous())
    gathered = row.new_empty((comm.size, row.numel()))
    tensors.all_gather(comm, row, gathered)
    whole = gathered.view(torch.uint8)[:, :x.nbytes].contiguous()
    return whole.view(x.dtype).reshape(comm.size * x.shape[0], *x.shape[1:])


@all_gather.register_fake
def _(x, group):
    return x.new_empty((_named(group).size * x.shape[0], *x.shape[1:]))


@torch.library.custom_op("tensorwire::reduce_scatter", mutates_args=())
def reduce_scatter(x: torch.Tensor, group: str) -> torch.Tensor:
    """This rank's part, along the first dimension, of the sum over the ranks."""
    comm = _named(group)
    x = _checked(x)
    result = x.new_empty(_scattered(x, comm.size))
    tensors.reduce_scatter(comm, x, result)
    return result


def _scattered(x, ranks):
    torch._check(x.shape[0] % ranks == 0, lambda: f"reduce_scatter: {x.shape[0]} rows are not {ranks} equal parts")
    return (x.shape[0] // ranks, *x.shape[1:])


@reduce_scatter.register_fake
def _(x, group):
    return x.new_empty(_scattered(x, _named(group).size))


@torch.library.custom_op("tensorwire::fused_allreduce_rmsnorm", mutates_args=())
def fused_allreduce_rmsnorm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float,
                            group: str) -> tuple[torch.Tensor, torch.Tensor]:
    """residual_out = all_reduce(x) + residual; norm_out = residual_out / sqrt(mean(residual_out^2) + eps) * weight, by row.

    Rounded to the tensors' type after the all-reduce, before the squares, and before the weight.
    """
    comm = _named(group)
    x = _checked(x)
    if residual.shape != x.shape or weight.shape != x.shape[-1:] or {residual.dtype, weight.dtype} != {x.dtype}:
        raise ValueError(f"fused_allreduce_rmsnorm: x is {x.dtype} {list(x.shape)}, residual {residual.dtype} "
                         f"{list(residual.shape)}, weight {weight.dtype} {list(weight.shape)}: types are to be the same, "
                         "residual like x, weight like its last dimension")
    if tensors.has_fused_kernel(comm, x):
        norm_out, residual_out = torch.empty_like(x), torch.empty_like(x)
        tensors.fused_allreduce_rmsnorm(comm, *map(tensors.aligned, (x, residual, weight)), eps, norm_out, residual_out)
        return norm_out, residual_out
    total = torch.empty_like(x)
    tensors.all_reduce(comm, x, total)
    residual_out = total + residual
    wide = residual_out.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale).to(x.dtype) * weight, residual_out


@fused_allreduce_rmsnorm.register_fake
def _(x, residual, weight, eps, group):
    return tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(2))

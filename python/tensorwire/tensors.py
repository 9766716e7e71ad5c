"""Collectives on PyTorch tensors, of CPU or GPU: which addresses, counts and stream a call of a Communicator gets.

Tensors are contiguous. On a GPU a call is queued on the current stream of the tensor's device.
"""
import torch

from tensorwire.communicator import DataType, Operator

# The C library's element types. Tensors of others travel as int32.
TYPES = {torch.int32: DataType.INT32, torch.float16: DataType.FLOAT16, torch.float32: DataType.FLOAT32,
         torch.bfloat16: DataType.BFLOAT16}
_WORD = 4
_UNIT = 16  # bytes; what the fused kernel's rows are whole numbers of


def stream_of(tensor):
    """The current stream of the tensor's device as an integer; 0 for the CPU."""
    return torch.cuda.current_stream(tensor.device).cuda_stream if tensor.is_cuda else 0


def forget(comm, *tensors):
    """The allocator may give host memory back to the system at any time, so no registration of it outlives a call."""
    for tensor in tensors:
        if not tensor.is_cuda and tensor.numel():
            comm.forget(tensor.data_ptr(), tensor.nbytes)


def flat(tensor):
    """The tensor as one row of a type in TYPES, to be moved, not reduced: the same memory where it is contiguous and its bytes
    are of such a type or are aligned words; else a copy, with zeros behind."""
    tensor = tensor.detach()
    if tensor.dtype in TYPES:
        return tensor.reshape(-1).contiguous()
    if tensor.is_contiguous() and tensor.nbytes % _WORD == 0 and tensor.data_ptr() % _WORD == 0:
        return tensor.reshape(-1).view(torch.int32)
    data = tensor.reshape(-1).view(torch.uint8)
    words = torch.zeros(-(-data.numel() // _WORD), dtype=torch.int32, device=tensor.device)
    words.view(torch.uint8)[:data.numel()] = data
    return words


def unflatten(row, tensor):
    """Makes the tensor's bytes those of `row`, which flat() made of it or of one like it."""
    if row.data_ptr() != tensor.data_ptr():
        data = row if row.dtype == tensor.dtype else row.view(torch.uint8)[:tensor.nbytes].view(tensor.dtype)
        tensor.detach().copy_(data.reshape(tensor.shape))


def all_reduce(comm, source, into, op=Operator.SUM):
    """`into` may be `source`."""
    comm.all_reduce(source.data_ptr(), into.data_ptr(), source.numel(), TYPES[source.dtype], op, stream_of(source))
    forget(comm, source, into)


def reduce_scatter(comm, source, into, op=Operator.SUM):
    """`source` has the elements of `into` once for each rank."""
    comm.reduce_scatter(source.data_ptr(), into.data_ptr(), into.numel(), TYPES[source.dtype], op, stream_of(source))
    forget(comm, source, into)


def all_gather(comm, source, into):
    """`into` has the elements of `source` once for each rank."""
    comm.all_gather(source.data_ptr(), into.data_ptr(), source.numel(), TYPES[source.dtype], stream_of(source))
    forget(comm, source, into)


def broadcast(comm, tensor, root):
    comm.broadcast(tensor.data_ptr(), tensor.data_ptr(), tensor.numel(), TYPES[tensor.dtype], root, stream_of(tensor))
    forget(comm, tensor)


def exchange(comm, messages):
    """All at once: ("send" or "recv", tensor, peer)."""
    with comm.group():
        for kind, tensor, peer in messages:
            getattr(comm, kind)(tensor.data_ptr(), tensor.numel(), TYPES[tensor.dtype], peer, stream_of(tensor))
    forget(comm, *(tensor for _, tensor, _ in messages))


def has_fused_kernel(comm, x):
    """Whether twFusedAllReduceRmsNorm takes these: the same on all ranks, for shapes and GPUs are."""
    if not x.is_cuda or x.dtype == torch.int32 or x.shape[-1] * x.element_size() % _UNIT:
        return False
    if not comm.gpu_path():
        comm.use_gpu(x.device.index)
    return comm.gpu_path() in ("peer", "shared", "hierarchical", "proxy")


def aligned(tensor):
    """As the fused kernel needs it."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % _UNIT == 0 else tensor.clone()


def fused_allreduce_rmsnorm(comm, x, residual, weight, eps, norm_out, residual_out):
    """Shapes and types agree; all are aligned()."""
    comm.fused_allreduce_rmsnorm(TYPES[x.dtype], stream_of(x), in_=x.data_ptr(), residualIn=residual.data_ptr(),
                                 weight=weight.data_ptr(), residualOut=residual_out.data_ptr(), normOut=norm_out.data_ptr(),
                                 rows=x.numel() // x.shape[-1], hidden=x.shape[-1], epsilon=eps)

"""A torch.distributed process group over a Communicator. backend.py makes it.

A call returns when its result is complete (CPU) or queued on the current stream (GPU), so the works it returns are done.
Only sends and receives wait for each other: they are begun together when one of them is waited for, or at the next
collective. Tags are ignored: messages between two ranks keep their order, as with NCCL.

What the library does not reduce (types beyond fp32, fp16, bf16 and int32; products, minima, bitwise operators) is gathered and
reduced here in rank order.
"""
import datetime
import functools
import operator
import weakref

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future

from tensorwire import operators, tensors
from tensorwire.communicator import Communicator, Operator, unique_id

_WARNING_MS = 30_000  # ranks of a training or serving job wait for each other this long without anything being wrong
_LONGEST_MS = 2**31 - 1

_IN_LIBRARY = {dist.ReduceOp.SUM: Operator.SUM, dist.ReduceOp.MAX: Operator.MAX, dist.ReduceOp.AVG: Operator.AVG}
_HERE = {dist.ReduceOp.SUM: torch.add, dist.ReduceOp.AVG: torch.add, dist.ReduceOp.PRODUCT: torch.mul,
         dist.ReduceOp.MIN: torch.minimum, dist.ReduceOp.MAX: torch.maximum, dist.ReduceOp.BAND: operator.and_,
         dist.ReduceOp.BOR: operator.or_, dist.ReduceOp.BXOR: operator.xor}


def _meet(store, rank, size, timeout):
    """A communicator of the ranks that share `store`."""
    key = "tensorwire/unique_id"
    if rank == 0:
        store.set(key, unique_id())
    else:
        store.wait([key], timeout)
    milliseconds = min(int(timeout / datetime.timedelta(milliseconds=1)), _LONGEST_MS)
    return Communicator.join(store.get(key), size, rank, operationTimeoutMs=milliseconds, warningMs=_WARNING_MS)


def _done(result):
    future = torch.futures.Future()
    future.set_result(result)
    return _create_work_from_future(future)


class _Message(dist.Work):
    """A send or receive that may not have begun yet."""

    def __init__(self, group, tensor):
        super().__init__()
        self._group = group
        self._tensor = tensor

    def is_completed(self):
        return self not in self._group.waiting

    def wait(self, timeout=None):
        if not self.is_completed():
            self._group.exchange()
        return True

    def result(self):
        return [self._tensor]

    def get_future(self):
        self.wait()
        future = torch.futures.Future()
        future.set_result([self._tensor])
        return future


class ProcessGroup(dist.ProcessGroup):
    def __init__(self, store, rank, size, timeout, name):
        super().__init__(rank, size)
        self._comm = _meet(store, rank, size, timeout)
        self.waiting = {}  # messages that have not begun: (kind, tensor, peer)
        self._name = name
        operators.join(name, self._comm)
        self._over = weakref.finalize(self, _end, self._comm)

    def getBackendName(self):
        return "tensorwire"

    # A group of PyTorch's has a backend for each type of device, and keeps its name in them. This one is its own.
    def _get_backend(self, device):
        return self

    def getGroupName(self):
        return self._name

    def setGroupName(self, name):
        operators.leave(self._comm)
        self._name = name
        operators.join(name, self._comm)

    group_name = property(getGroupName)

    def shutdown(self):
        self.exchange()
        self._over()

    def abort(self):
        self._comm.abort()

    # --- messages ----------------------------------------------------------------------------------------------------

    def send(self, tensor_list, peer, tag=0):
        return self._message("send", tensor_list, peer)

    def recv(self, tensor_list, peer, tag=0):
        return self._message("recv", tensor_list, peer)

    def _message(self, kind, tensor_list, peer):
        tensor, = tensor_list
        work = _Message(self, tensor)
        self.waiting[work] = (kind, tensor, peer)
        return work

    def exchange(self):
        """Begins and ends the messages that wait."""
        messages, self.waiting = list(self.waiting.values()), {}
        self._exchange(messages)

    def _exchange(self, messages):
        messages = [(kind, tensor, tensors.flat(tensor), peer) for kind, tensor, peer in messages if tensor.numel()]
        if messages:
            tensors.exchange(self._comm, [(kind, row, peer) for kind, _, row, peer in messages])
        for kind, tensor, row, _ in messages:
            if kind == "recv":
                tensors.unflatten(row, tensor)

    # --- reductions --------------------------------------------------------------------------------------------------

    def allreduce(self, tensor_list, opts=None):
        op = _operator(opts)
        for tensor in tensor_list:
            self._all_reduce(tensor, op)
        return _done(tensor_list)

    allreduce_coalesced = allreduce

    def reduce(self, tensor_list, opts):
        tensor, = tensor_list
        whole = tensor.detach().clone(memory_format=torch.contiguous_format)
        self._all_reduce(whole, _operator(opts))
        if self.rank() == opts.rootRank:
            tensor.detach().copy_(whole)
        return _done(tensor_list)

    def _reduce_scatter_base(self, into, source, opts=None):
        self._reduce_scatter(source.reshape(self.size(), -1), into, _operator(opts))
        return _done([into])

    def reduce_scatter_tensor_coalesced(self, intos, sources, opts=None):
        for into, source in zip(intos, sources, strict=True):
            self._reduce_scatter_base(into, source, opts)
        return _done(intos)

    def reduce_scatter(self, intos, source_lists, opts=None):
        for into, sources in zip(intos, source_lists, strict=True):
            self._reduce_scatter(torch.stack([source.reshape(-1) for source in sources]), into, _operator(opts))
        return _done(intos)

    def _all_reduce(self, tensor, op):
        self.exchange()
        whole = tensor.detach().contiguous()
        if tensor.dtype in tensors.TYPES and op in _IN_LIBRARY:
            tensors.all_reduce(self._comm, whole, whole, _IN_LIBRARY[op])
        else:
            whole = _reduced_here(self._gathered(whole), op)
        if whole.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(whole.reshape(tensor.shape))

    def _reduce_scatter(self, rows, into, op):
        """`rows`: what goes to each rank."""
        self.exchange()
        rows = rows.detach().contiguous()
        mine = into.detach().contiguous()
        if rows.dtype in tensors.TYPES and op in _IN_LIBRARY:
            tensors.reduce_scatter(self._comm, rows, mine, _IN_LIBRARY[op])
        else:
            mine = _reduced_here(self._gathered(rows)[:, self.rank()], op)
        if mine.data_ptr() != into.data_ptr():
            into.detach().copy_(mine.reshape(into.shape))

    # --- moves -------------------------------------------------------------------------------------------------------

    def _gathered(self, tensor):
        """[ranks, *shape of tensor]"""
        row = tensors.flat(tensor)
        rows = row.new_empty((self.size(), row.numel()))
        tensors.all_gather(self._comm, row, rows)
        whole = rows.view(torch.uint8)[:, :tensor.nbytes].contiguous()
        return whole.view(tensor.dtype).reshape(self.size(), *tensor.shape)

    def _allgather_base(self, into, source, opts=None):
        self.exchange()
        into.detach().copy_(self._gathered(source.detach()).reshape(into.shape))
        return _done([into])

    def allgather_into_tensor_coalesced(self, intos, sources, opts=None):
        for into, source in zip(intos, sources, strict=True):
            self._allgather_base(into, source)
        return _done(intos)

    def allgather(self, into_lists, sources, opts=None):
        self.exchange()
        for intos, source in zip(into_lists, sources, strict=True):
            if all(into.shape == source.shape for into in intos):
                for into, part in zip(intos, self._gathered(source.detach())):
                    into.detach().copy_(part)
            else:  # parts of different sizes
                intos[self.rank()].detach().copy_(source)
                for root, into in enumerate(intos):
                    self._broadcast(into, root)
        return _done(into_lists)

    def broadcast(self, tensor_list, opts):
        self.exchange()
        tensor, = tensor_list
        self._broadcast(tensor, opts.rootRank)
        return _done(tensor_list)

    def _broadcast(self, tensor, root):
        row = tensors.flat(tensor)
        tensors.broadcast(self._comm, row, root)
        tensors.unflatten(row, tensor)

    def gather(self, into_lists, sources, opts):
        source, = sources
        root = opts.rootRank
        intos = dict(enumerate(into_lists[0])) if self.rank() == root else {}
        self._move(intos, {root: source})
        return _done(into_lists)

    def scatter(self, intos, source_lists, opts):
        into, = intos
        root = opts.rootRank
        sources = dict(enumerate(source_lists[0])) if self.rank() == root else {}
        self._move({root: into}, sources)
        return _done(intos)

    def alltoall(self, intos, sources, opts=None):
        self._move(dict(enumerate(intos)), dict(enumerate(sources)))
        return _done(intos)

    def alltoall_base(self, into, source, into_sizes, source_sizes, opts=None):
        def parts(tensor, sizes):
            return tensor.split(sizes) if sizes else tensor.tensor_split(self.size())
        return self.alltoall(parts(into, into_sizes), parts(source, source_sizes))

    def _move(self, intos, sources):
        """{rank: where what comes from it goes}, {rank: what goes to it}."""
        self.exchange()
        if self.rank() in intos:
            intos.pop(self.rank()).detach().copy_(sources.pop(self.rank()))
        self._exchange([("recv", into, peer) for peer, into in intos.items()] +
                       [("send", source, peer) for peer, source in sources.items()])

    def gather_single(self, into, source, opts):
        parts = list(into.view(self.size(), *source.shape)) if self.rank() == opts.rootRank else []
        return self.gather([parts], [source], opts)

    # What PyTorch calls these since 2.15.
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    all_to_all_single = alltoall_base

    def barrier(self, opts=None):
        self.exchange()
        self._comm.barrier()
        return _done([])


def _operator(options):
    """The reduction that `options`, or an operator itself, asks for."""
    op = getattr(options, "reduceOp", options)
    return dist.ReduceOp.SUM if op is None else op.op if hasattr(op, "op") else op


def _reduced_here(rows, op):
    """The first dimension reduced, in its order."""
    if op not in _HERE:
        raise ValueError(f"tensorwire: no reduction {op}; there are SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR and BXOR")
    function = _HERE[op]
    if rows.dtype == torch.bool:
        function = {torch.add: operator.or_, torch.maximum: operator.or_, torch.mul: operator.and_,
                    torch.minimum: operator.and_}.get(function, function)
    whole = functools.reduce(function, rows)
    if op != dist.ReduceOp.AVG:
        return whole
    return whole / len(rows) if whole.is_floating_point() else whole // len(rows)


def _end(comm):
    operators.leave(comm)
    comm.destroy()

"""Communicator: one rank's end, with addresses and counts as the C library takes them. What tensors are, operators.py and
process_group.py know."""
import contextlib
import ctypes
import enum

from tensorwire import library
from tensorwire.library import Error  # noqa: F401: part of this module's interface


class DataType(enum.IntEnum):
    """Element types; the numbers are the C library's."""
    INT32 = 2
    FLOAT16 = 6
    FLOAT32 = 7
    BFLOAT16 = 9


class Operator(enum.IntEnum):
    """Operators; the numbers are the C library's."""
    SUM = 0
    MAX = 2
    AVG = 4


def version():
    """(major, minor, patch) of the library."""
    number = ctypes.c_int()
    library.check(library.load().twGetVersion(number))
    return number.value // 10000, number.value // 100 % 100, number.value % 100


def unique_id():
    """The 128 bytes that let the ranks of one communicator meet: made on rank 0, sent to the others by any means, secret."""
    made = library.UniqueId()
    library.check(library.load().twGetUniqueId(made))
    return bytes(made)


def _configuration(options):
    made = library.Config.default()
    for name, value in options.items():
        if name not in dict(library.Config._fields_):
            raise TypeError(f"twConfig_t has no field {name}")
        setattr(made, name, value)
    return made


class Communicator:
    """One rank's end of a communicator. To be used by one thread at a time, but for abort().

    Addresses are integers; host memory, or memory of the rank's GPU where the library was built with CUDA. `stream` is a
    cudaStream_t as an integer; 0 with host memory. Every call raises Error with the library's one line.
    """

    def __init__(self, handle):
        self._library = library.load()
        self._handle = handle
        self._gpu_path = ""  # once it is known, it stays
        self.rank = self._ask("twCommUserRank")
        self.size = self._ask("twCommCount")

    @classmethod
    def join(cls, identifier, size, rank, **options):
        """Rank `rank` of `size` joins those that have the same unique_id(); returns when all are in. `options` are fields
        of twConfig_t: operationTimeoutMs=..."""
        handle = ctypes.c_void_p()
        library.check(library.load().twCommInitRankConfig(handle, size, library.UniqueId.from_buffer_copy(identifier), rank,
                                                          _configuration(options)))
        return cls(handle)

    @classmethod
    def from_environment(cls, **options):
        """The ranks are those of the launcher: torchrun, mpirun, srun."""
        handle = ctypes.c_void_p()
        library.check(library.load().twCommInitFromEnv(handle, _configuration(options)))
        return cls(handle)

    def _ask(self, function):
        answer = ctypes.c_int()
        library.check(getattr(self._library, function)(self._handle, answer), self._handle)
        return answer.value

    def _call(self, function, *arguments, stream=0):
        if not self._handle:
            raise Error(f"{function}: this communicator was destroyed", 5)
        result = getattr(self._library, function)(*arguments, self._handle, stream or None)
        if result != 0:
            library.check(result, self._handle)

    def use_gpu(self, device):
        """All ranks call it, each with its GPU, before their first collective on GPU memory is captured into a graph."""
        library.check(self._library.twCommInitGpu(self._handle, device), self._handle)

    def gpu_path(self):
        """"peer": from GPU to GPU; "proxy": carried by a thread; "hierarchical": the one inside hosts, the other between them; "host": copied by each call; "": nothing was done on a GPU yet."""
        if not self._gpu_path:
            path = ctypes.c_char_p()
            library.check(self._library.twCommGpuPath(self._handle, path), self._handle)
            self._gpu_path = path.value.decode()
        return self._gpu_path

    def all_reduce(self, send, recv, count, dtype, op=Operator.SUM, stream=0):
        self._call("twAllReduce", send, recv, count, dtype, op, stream=stream)

    def reduce_scatter(self, send, recv, recv_count, dtype, op=Operator.SUM, stream=0):
        self._call("twReduceScatter", send, recv, recv_count, dtype, op, stream=stream)

    def all_gather(self, send, recv, send_count, dtype, stream=0):
        self._call("twAllGather", send, recv, send_count, dtype, stream=stream)

    def broadcast(self, send, recv, count, dtype, root, stream=0):
        self._call("twBroadcast", send, recv, count, dtype, root, stream=stream)

    def all_to_all(self, send, recv, count, dtype, stream=0):
        self._call("twAllToAll", send, recv, count, dtype, stream=stream)

    def send(self, send, count, dtype, peer, stream=0):
        self._call("twSend", send, count, dtype, peer, stream=stream)

    def recv(self, recv, count, dtype, peer, stream=0):
        self._call("twRecv", recv, count, dtype, peer, stream=stream)

    def fused_allreduce_rmsnorm(self, dtype, stream=0, **fields):
        """`fields` are those of twFusedRmsNorm_t, `in_` for its `in`. Memory of GPUs that reach each other."""
        what = library.FusedRmsNorm.default()
        for name, value in fields.items():
            setattr(what, name, value)
        self._call("twFusedAllReduceRmsNorm", what, dtype, stream=stream)

    def barrier(self, stream=0):
        self._call("twBarrier", stream=stream)

    @contextlib.contextmanager
    def group(self):
        """What is called within runs together when it ends."""
        library.check(self._library.twGroupStart())
        try:
            yield
        finally:
            result = self._library.twGroupEnd()
        library.check(result)

    def forget(self, address, size):
        """To be called before host memory of `size` bytes that was used is given back to the system."""
        library.check(self._library.twCommForget(self._handle, address, size), self._handle)

    def abort(self):
        """From any thread: ends what is under way, here and on the other ranks. destroy() is still to be called."""
        if self._handle:
            library.check(self._library.twCommAbort(self._handle), self._handle)

    def destroy(self):
        """All ranks call it. A second call does nothing."""
        handle, self._handle = self._handle, None
        if handle:
            library.check(self._library.twCommDestroy(handle))

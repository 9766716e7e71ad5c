"""libnccl.so.2 as vLLM's pynccl uses it: the functions that it looks up, with the types that it declares, and its calls' order.

A missing function fails at once, as it does there.
"""
import ctypes
import enum

_int, _size, _pointer = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


class Type(enum.IntEnum):
    INT8, UINT8, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64, BFLOAT16 = range(10)


class Op(enum.IntEnum):
    SUM, PROD, MAX, MIN, AVG = range(5)


INVALID_USAGE = 5

FUNCTIONS = {
    "ncclGetErrorString": (ctypes.c_char_p, [_int]),
    "ncclGetVersion": (_int, [ctypes.POINTER(_int)]),
    "ncclGetUniqueId": (_int, [ctypes.POINTER(UniqueId)]),
    "ncclCommInitRank": (_int, [ctypes.POINTER(_pointer), _int, UniqueId, _int]),
    "ncclAllReduce": (_int, [_pointer, _pointer, _size, _int, _int, _pointer, _pointer]),
    "ncclReduce": (_int, [_pointer, _pointer, _size, _int, _int, _int, _pointer, _pointer]),
    "ncclAllGather": (_int, [_pointer, _pointer, _size, _int, _pointer, _pointer]),
    "ncclReduceScatter": (_int, [_pointer, _pointer, _size, _int, _int, _pointer, _pointer]),
    "ncclSend": (_int, [_pointer, _size, _int, _int, _pointer, _pointer]),
    "ncclRecv": (_int, [_pointer, _size, _int, _int, _pointer, _pointer]),
    "ncclBroadcast": (_int, [_pointer, _pointer, _size, _int, _int, _pointer, _pointer]),
    "ncclCommDestroy": (_int, [_pointer]),
    "ncclGroupStart": (_int, []),
    "ncclGroupEnd": (_int, []),
    "ncclCommWindowRegister": (_int, [_pointer, _pointer, _size, ctypes.POINTER(_pointer), _int]),
    "ncclCommWindowDeregister": (_int, [_pointer, _pointer]),
}


class Library:
    """Its functions under their names; each raises what pynccl raises."""

    def __init__(self, path):
        library = ctypes.CDLL(path)
        self._functions = {}
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
            self._functions[name] = function

    def __getattr__(self, name):
        function = self._functions[name]

        def checked(*arguments):
            result = function(*arguments)
            if result != 0:
                raise RuntimeError(f"NCCL error: {self._functions['ncclGetErrorString'](result).decode()}", result)
        return checked


def start(library, share, rank, ranks):
    """What pynccl does first: the version, an id of rank 0 that share() brings to the others as bytes, the communicator."""
    version = _int()
    library.ncclGetVersion(version)
    identifier = UniqueId()
    if rank == 0:
        library.ncclGetUniqueId(identifier)
    identifier = UniqueId.from_buffer_copy(share(bytes(identifier)))
    comm = _pointer()
    library.ncclCommInitRank(comm, ranks, identifier, rank)
    return version.value, comm

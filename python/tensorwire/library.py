"""libtensorwire.so as ctypes sees it: where it lies, the signatures that are used, and its errors as exceptions.

ctypes releases the interpreter's lock during a call, so ranks may be threads.
"""
import ctypes
import functools
import os
import pathlib

UNIQUE_ID_BYTES = 128


class Error(RuntimeError):
    """A call that failed: the library's one line, and the number of its twResult_t in `result`."""

    def __init__(self, text, result):
        super().__init__(text)
        self.result = result


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * UNIQUE_ID_BYTES)]


class Config(ctypes.Structure):
    """twConfig_t; default() is TW_CONFIG_INITIALIZER."""
    _fields_ = [("size", ctypes.c_size_t), ("blocking", ctypes.c_int), ("device", ctypes.c_char_p),
                *((name, ctypes.c_int) for name in ("gidIndex", "path", "queuePairsPerPeer", "dscp", "depth", "slotBytes",
                                                    "operationTimeoutMs", "warningMs", "order"))]

    @classmethod
    def default(cls):
        undefined = -2**31
        return cls(ctypes.sizeof(cls), undefined, None, *[undefined] * 9)


class FusedRmsNorm(ctypes.Structure):
    """twFusedRmsNorm_t; default() is TW_FUSED_RMS_NORM_INITIALIZER."""
    _fields_ = [("size", ctypes.c_size_t),
                *((name, ctypes.c_void_p) for name in ("in_", "residualIn", "weight", "residualOut", "normOut")),
                ("rows", ctypes.c_size_t), ("hidden", ctypes.c_size_t), ("epsilon", ctypes.c_float), ("onePlus", ctypes.c_int),
                ("quantOut", ctypes.c_void_p), ("quantType", ctypes.c_int), ("quantScale", ctypes.c_void_p),
                ("rowScales", ctypes.c_void_p)]

    @classmethod
    def default(cls):
        return cls(size=ctypes.sizeof(cls), epsilon=1e-6)


_pointer, _size, _int = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_SIGNATURES = {  # of the functions that return a twResult_t; include/tensorwire/tensorwire.h
    "twGetVersion": [ctypes.POINTER(_int)],
    "twGetUniqueId": [ctypes.POINTER(UniqueId)],
    "twCommInitRankConfig": [ctypes.POINTER(_pointer), _int, UniqueId, _int, ctypes.POINTER(Config)],
    "twCommInitFromEnv": [ctypes.POINTER(_pointer), ctypes.POINTER(Config)],
    "twCommCount": [_pointer, ctypes.POINTER(_int)],
    "twCommUserRank": [_pointer, ctypes.POINTER(_int)],
    "twCommInitGpu": [_pointer, _int],
    "twCommGpuPath": [_pointer, ctypes.POINTER(ctypes.c_char_p)],
    "twCommAbort": [_pointer],
    "twCommDestroy": [_pointer],
    "twCommForget": [_pointer, _pointer, _size],
    "twGroupStart": [],
    "twGroupEnd": [],
    "twAllReduce": [_pointer, _pointer, _size, _int, _int, _pointer, _pointer],
    "twReduceScatter": [_pointer, _pointer, _size, _int, _int, _pointer, _pointer],
    "twAllGather": [_pointer, _pointer, _size, _int, _pointer, _pointer],
    "twBroadcast": [_pointer, _pointer, _size, _int, _int, _pointer, _pointer],
    "twAllToAll": [_pointer, _pointer, _size, _int, _pointer, _pointer],
    "twAllToAllv": [_pointer, _pointer, ctypes.POINTER(_size), _int, _pointer, _pointer],
    "twFusedAllReduceRmsNorm": [ctypes.POINTER(FusedRmsNorm), _int, _pointer, _pointer],
    "twBarrier": [_pointer, _pointer],
    "twSend": [_pointer, _size, _int, _int, _pointer, _pointer],
    "twRecv": [_pointer, _size, _int, _int, _pointer, _pointer],
}


def path():
    """The library that is loaded: TENSORWIRE_LIBRARY, the one in this package, or what the loader finds by its name."""
    chosen = os.environ.get("TENSORWIRE_LIBRARY")
    if chosen:
        return chosen
    packaged = pathlib.Path(__file__).parent / "lib/libtensorwire.so.0"
    return str(packaged) if packaged.exists() else packaged.name


@functools.cache
def load():
    """The library, with its signatures set.

    Raises:
        OSError: it is not there.
    """
    try:
        library = ctypes.CDLL(path())
    except OSError as error:
        raise OSError(f"{path()} cannot be loaded ({error}): install the wheel, or name libtensorwire.so in "
                      "TENSORWIRE_LIBRARY") from None
    for name, arguments in _SIGNATURES.items():
        getattr(library, name).argtypes = arguments
        getattr(library, name).restype = _int
    library.twGetLastError.argtypes = [_pointer]
    library.twGetLastError.restype = ctypes.c_char_p
    library.twGetErrorString.argtypes = [_int]
    library.twGetErrorString.restype = ctypes.c_char_p
    return library


def check(result, comm=None):
    """Raises Error unless `result` is twSuccess. `comm` is whose last line tells more; None: this thread's last call."""
    if result != 0:
        library = load()
        line = (library.twGetLastError(comm) or b"") or library.twGetErrorString(result)
        raise Error(line.decode(errors="replace"), result)

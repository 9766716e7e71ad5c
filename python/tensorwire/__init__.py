"""Tensorwire in Python: collectives between the ranks of a tensor-parallel model.

    Communicator          one rank's end, over the C library; needs nothing but ctypes
    tensorwire.operators  torch.ops.tensorwire.*: operators that torch.compile and CUDA graphs take
    tensorwire.process_group
                          the torch.distributed backend "tensorwire"; where the wheel is installed, PyTorch finds it itself
"""
from tensorwire.communicator import Communicator, DataType, Error, Operator, unique_id, version

__all__ = ["Communicator", "DataType", "Error", "Operator", "unique_id", "version"]

"""The torch.distributed backend "tensorwire": makes it known to PyTorch, and a group when one is asked for.

    import tensorwire.backend                          not needed where the wheel is installed: PyTorch loads it itself
    torch.distributed.init_process_group("tensorwire")
"""
NAME = "tensorwire"


def register():
    """Also what the wheel names as an entry point of `torch.backends`."""
    import torch.distributed as dist
    if dist.is_available() and NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])


def _create(options, _):
    from tensorwire.process_group import ProcessGroup
    return ProcessGroup(options.store, options.group_rank, options.group_size, options.timeout, options.group_id)


register()

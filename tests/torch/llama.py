"""A Llama decoder layer as functions of tensors: the whole, and one rank's share, whose row-parallel layers end in Tensorwire's
operators. Two all-reduces a layer, each fused with the residual addition and the norm that follow it.
"""
import dataclasses

import torch
import torch.nn.functional as F

EPS = 1e-5


@dataclasses.dataclass
class Layer:
    """q, k, v, gate, up: [outputs, hidden]; o, down: [hidden, inputs]."""
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    o: torch.Tensor
    gate: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor
    attention_norm: torch.Tensor
    mlp_norm: torch.Tensor

    @classmethod
    def random(cls, hidden, heads, key_heads, head_size, intermediate, seed):
        generator = torch.Generator().manual_seed(seed)

        def weight(rows, columns):
            return torch.randn(rows, columns, generator=generator) / columns**0.5

        return cls(weight(heads * head_size, hidden), weight(key_heads * head_size, hidden), weight(key_heads * head_size, hidden),
                   weight(hidden, heads * head_size), weight(intermediate, hidden), weight(intermediate, hidden),
                   weight(hidden, intermediate), 1 + 0.1 * weight(1, hidden)[0], 1 + 0.1 * weight(1, hidden)[0])

    def share(self, rank, ranks):
        """What one rank holds: rows of the column-parallel weights, columns of the row-parallel ones."""
        def cut(name, tensor):
            return tensor if tensor.dim() == 1 else tensor.chunk(ranks, 1 if name in ("o", "down") else 0)[rank].contiguous()
        return Layer(**{name: cut(name, tensor) for name, tensor in vars(self).items()})

    def to(self, *where):
        return Layer(**{name: tensor.to(*where) for name, tensor in vars(self).items()})


def rotate(x, base=10000.0):
    """Rotary positions of x: [heads, tokens, size]."""
    size = x.shape[-1]
    turns = base ** (-torch.arange(0, size, 2, device=x.device, dtype=torch.float32) / size)
    angle = torch.outer(torch.arange(x.shape[1], device=x.device, dtype=torch.float32), turns).repeat(1, 2)
    first, second = x.float().chunk(2, -1)
    return (x.float() * angle.cos() + torch.cat((-second, first), -1) * angle.sin()).to(x.dtype)


def attention(layer, x, head_size):
    """Of the heads that `layer` holds, up to the output projection: a partial sum where it holds a share."""
    q, k, v = ((x @ weight.T).view(x.shape[0], -1, head_size).transpose(0, 1) for weight in (layer.q, layer.k, layer.v))
    repeats = q.shape[0] // k.shape[0]
    q, k, v = rotate(q), rotate(k).repeat_interleave(repeats, 0), v.repeat_interleave(repeats, 0)
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return mixed.transpose(0, 1).flatten(1) @ layer.o.T


def mlp(layer, x):
    return (F.silu(x @ layer.gate.T) * (x @ layer.up.T)) @ layer.down.T


def rms_norm(x, weight):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS)).to(x.dtype) * weight


def add_norm_here(x, residual, weight):
    """What follows a row-parallel layer, without other ranks."""
    residual = x + residual
    return rms_norm(residual, weight), residual


def add_norm_of(group):
    """The same over the ranks of a group."""
    def add_norm(x, residual, weight):
        return torch.ops.tensorwire.fused_allreduce_rmsnorm(x, residual, weight, EPS, group)
    return add_norm


def forward(layers, x, head_size, add_norm, last_norm):
    """The layers on tokens x: [tokens, hidden]."""
    residual, x = x, rms_norm(x, layers[0].attention_norm)
    following = [layer.attention_norm for layer in layers[1:]] + [last_norm]
    for layer, next_norm in zip(layers, following):
        x, residual = add_norm(attention(layer, x, head_size), residual, layer.mlp_norm)
        x, residual = add_norm(mlp(layer, x), residual, next_norm)
    return x

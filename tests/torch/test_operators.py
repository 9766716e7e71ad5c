"""torch.ops.tensorwire.*: eagerly, as PyTorch's own check of operators sees them, and compiled, within a Llama model."""
import unittest

import torch
import torch.distributed as dist

import llama
import tensorwire
from ranks import RanksTestCase

OPS = torch.ops.tensorwire


def name():
    return dist.group.WORLD.group_name


def parts(ranks, *shape, dtype=torch.float32):
    """What each rank gives. Small whole numbers: any order of summation gives the same."""
    generator = torch.Generator().manual_seed(7)
    return [torch.randint(-8, 9, shape, generator=generator).to(dtype) for _ in range(ranks)]


class Operators(RanksTestCase):
    def test_results(self):
        def body(rank, ranks):
            for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32):
                given = parts(ranks, 6, 5, dtype=dtype)
                total = sum(given)
                mine = given[rank].clone()
                self.assertTrue(torch.equal(OPS.all_reduce(mine, name()), total))
                self.assertTrue(torch.equal(mine, given[rank]), "the input was changed")
                self.assertTrue(torch.equal(OPS.all_reduce(mine.t(), name()), total.t()))
                self.assertTrue(torch.equal(OPS.all_gather(mine, name()), torch.cat(given)))
                self.assertTrue(torch.equal(OPS.reduce_scatter(mine, name()), total.chunk(ranks)[rank]))
                turned = mine.clone().t()
                OPS.all_reduce_(turned, name())
                self.assertTrue(torch.equal(turned, total.t()))
                OPS.all_reduce_(mine, name())
                self.assertTrue(torch.equal(mine, total))
        self.on_ranks(2, body)

    def test_all_gather_moves_any_type(self):
        def body(rank, ranks):
            for dtype in (torch.float64, torch.int64, torch.bool, torch.uint8, torch.float8_e4m3fn, torch.complex64):
                given = [part.to(dtype) for part in parts(ranks, 3, 5)]
                self.assertTrue(torch.equal(OPS.all_gather(given[rank], name()).view(torch.uint8),
                                            torch.cat(given).view(torch.uint8)), dtype)
        self.on_ranks(2, body)

    def test_fused_rounds_as_the_separate_operators_do(self):
        def body(rank, ranks):
            for dtype in (torch.float32, torch.bfloat16, torch.float16):
                given = parts(ranks, 4, 64, dtype=dtype)
                residual, weight = (part.to(dtype) / 4 for part in parts(2, 64))
                norm, total = OPS.fused_allreduce_rmsnorm(given[rank], residual.expand(4, 64), weight, llama.EPS, name())
                want_norm, want_total = llama.add_norm_here(sum(given), residual, weight)
                self.assertTrue(torch.equal(total, want_total))
                self.assertTrue(torch.equal(norm, want_norm))
        self.on_ranks(2, body)

    def test_what_cannot_be_done_is_said(self):
        def body(rank, ranks):
            with self.assertRaisesRegex(ValueError, f'no group "tp".*there are: {name()}'):
                OPS.all_reduce(torch.ones(1), "tp")
            with self.assertRaisesRegex(TypeError, "no torch.float64; it does .*torch.bfloat16"):
                OPS.all_reduce(torch.ones(1, dtype=torch.float64), name())
            with self.assertRaisesRegex(RuntimeError, f"5 rows are not {ranks} equal parts"):
                OPS.reduce_scatter(torch.ones(5), name())
            x = torch.ones(2, 4)
            with self.assertRaisesRegex(ValueError, r"residual torch.float32 \[4\], weight torch.float16 \[4\]"):
                OPS.fused_allreduce_rmsnorm(x, x[0].clone(), x[0].half(), 1e-5, name())
            communicator = tensorwire.operators._named(name())
            with self.assertRaisesRegex(tensorwire.Error, "rank.*: there is no such root"):
                communicator.broadcast(0, 0, 1, tensorwire.DataType.FLOAT32, 99)
            self.assertTrue(torch.equal(OPS.all_reduce(torch.ones(1), name()), torch.tensor([float(ranks)])))
        self.on_ranks(2, body)

    def test_pytorchs_own_check(self):
        def body(rank, ranks):
            x, weight = torch.randn(4, 8), torch.randn(8)
            for operator, arguments in ((OPS.all_reduce, (x,)), (OPS.all_reduce_, (x,)), (OPS.all_gather, (x,)),
                                        (OPS.reduce_scatter, (x,)), (OPS.fused_allreduce_rmsnorm, (x, x.clone(), weight, 1e-5))):
                torch.library.opcheck(operator.default, (*arguments, name()),
                                      test_utils=("test_schema", "test_faketensor"))
        self.on_ranks(2, body)


class Llama(RanksTestCase):
    """Its results with tensor parallelism are those of the whole model in one process."""
    HEAD = 8

    def compare(self, compiled_by):
        layers = [llama.Layer.random(32, 4, 2, self.HEAD, 48, seed) for seed in range(2)]
        x, last_norm = torch.randn(6, 32, generator=torch.Generator().manual_seed(5)), torch.ones(32)
        want = llama.forward(layers, x, self.HEAD, llama.add_norm_here, last_norm)

        def body(rank, ranks):
            forward = llama.forward
            if compiled_by:
                forward = torch.compile(forward, fullgraph=True, backend=compiled_by)
            shares = [layer.share(rank, ranks) for layer in layers]
            with torch.no_grad():
                got = forward(shares, x, self.HEAD, llama.add_norm_of(name()), last_norm)
            torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
        self.on_ranks(2, body)

    def test_eagerly(self):
        self.compare(None)

    def test_as_one_graph(self):
        self.compare("aot_eager")


if __name__ == "__main__":
    unittest.main()

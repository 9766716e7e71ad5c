"""CUDA tensors: the operators eagerly, compiled and in graphs; the backend; Transformers; libnccl.so.2. Two ranks, which may
share a GPU."""
import os
import sys
import tempfile
import unittest
from unittest import mock

import torch
import torch.distributed as dist

import llama
from ranks import RanksTestCase

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../nccl"))
import pynccl  # noqa: E402

OPS = torch.ops.tensorwire
RANKS = 2


def name():
    return dist.group.WORLD.group_name


def gpu(rank):
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def given(rank, *shape, dtype=torch.bfloat16):
    """Small whole numbers: any order of summation gives the same."""
    return torch.randint(-8, 9, shape, generator=torch.Generator().manual_seed(rank)).to(dtype)


@unittest.skipUnless(os.path.exists("/dev/nvidia0"), "there is no GPU")  # asking CUDA would spoil it for forked ranks
class Gpu(RanksTestCase):
    def on_gpus(self, body):
        self.on_ranks(RANKS, lambda rank, ranks: body(rank, gpu(rank)))

    def same(self, got, want):
        torch.testing.assert_close(got.cpu(), want.cpu(), atol=0, rtol=0)

    def test_operators(self):
        def body(rank, device):
            for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.int32):
                parts = [given(r, 6, 512, dtype=dtype) for r in range(RANKS)]
                mine = parts[rank].to(device)
                self.same(OPS.all_reduce(mine, name()), sum(parts))
                self.same(OPS.all_gather(mine, name()), torch.cat(parts))
                self.same(OPS.reduce_scatter(mine, name()), sum(parts).chunk(RANKS)[rank])
                OPS.all_reduce_(mine, name())
                self.same(mine, sum(parts))
        self.on_gpus(body)

    def test_fused(self):
        def body(rank, device):
            for rows, hidden in ((1, 4096), (16, 8192), (3, 520)):
                parts = [given(r, rows, hidden) for r in range(RANKS)]
                residual, weight = given(7, rows, hidden) / 4, given(8, hidden) / 4
                norm, total = OPS.fused_allreduce_rmsnorm(*(x.to(device) for x in (parts[rank], residual, weight)), 1e-5, name())
                want, want_total = llama.add_norm_here(sum(parts), residual, weight)
                self.same(total, want_total)
                torch.testing.assert_close(norm.cpu(), want, atol=0, rtol=2**-6)  # two roundings of bf16
            from tensorwire import operators
            self.assertEqual(operators._named(name()).gpu_path(), "peer")
        self.on_gpus(body)

    def test_cuda_graph(self):
        def body(rank, device):
            x = torch.zeros(16, 4096, dtype=torch.bfloat16, device=device)
            residual, weight = torch.ones_like(x), torch.ones(4096, dtype=torch.bfloat16, device=device)
            OPS.all_reduce(x, name())  # everything is loaded before a capture
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                total = OPS.all_reduce(x, name())
                norm, sums = OPS.fused_allreduce_rmsnorm(x, residual, weight, 1e-5, name())
            for step in range(20):
                x.fill_(rank + step)
                if step % 3 == 0:
                    self.same(OPS.all_reduce(x, name())[0, :2], torch.full((2,), 2.0 * step + 1, dtype=torch.bfloat16))
                graph.replay()
                self.same(total, torch.full((16, 4096), 2.0 * step + 1, dtype=torch.bfloat16))
                self.same(sums, torch.full((16, 4096), 2.0 * step + 2, dtype=torch.bfloat16))
                torch.testing.assert_close(norm, torch.ones_like(norm), atol=2**-6, rtol=0)
        self.on_gpus(body)

    def test_llama_compiled_and_in_a_graph(self):
        head = 64
        layers = [llama.Layer.random(512, 8, 2, head, 1024, seed) for seed in range(2)]
        x, last_norm = torch.randn(6, 512, generator=torch.Generator().manual_seed(5)), torch.ones(512)
        want = llama.forward(layers, x, head, llama.add_norm_here, last_norm)

        def body(rank, device):
            shares = [layer.share(rank, RANKS).to(device) for layer in layers]
            tokens, norm = x.to(device), last_norm.to(device)
            with torch.no_grad():
                compiled = torch.compile(llama.forward, fullgraph=True)
                got = compiled(shares, tokens, head, llama.add_norm_of(name()), norm)
                torch.testing.assert_close(got.cpu(), want, atol=1e-3, rtol=1e-3)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    got = compiled(shares, tokens, head, llama.add_norm_of(name()), norm)
                graph.replay()
            torch.testing.assert_close(got.cpu(), want, atol=1e-3, rtol=1e-3)
        self.on_gpus(body)

    def test_process_group(self):
        def body(rank, device):
            x = given(rank, 3, 5, dtype=torch.float32).to(device)
            dist.all_reduce(x)
            self.same(x, sum(given(r, 3, 5, dtype=torch.float32) for r in range(RANKS)))
            x = torch.tensor([rank + 2], device=device)  # int64
            dist.all_reduce(x, dist.ReduceOp.PRODUCT)
            self.same(x, torch.tensor([6]))
            into = torch.empty(RANKS * 2, dtype=torch.uint8, device=device)
            dist.all_gather_into_tensor(into, torch.full((2,), rank, dtype=torch.uint8, device=device))
            self.same(into, torch.tensor([0, 0, 1, 1], dtype=torch.uint8))
            dist.broadcast(into, src=1)
            works = [dist.isend(torch.full((3,), float(rank), device=device), 1 - rank)]
            got = torch.empty(3, device=device)
            works.append(dist.irecv(got, 1 - rank))
            for work in works:
                work.wait()
            self.same(got, torch.full((3,), 1.0 - rank))
            objects = [None] * RANKS
            dist.all_gather_object(objects, rank)
            self.assertEqual(objects, [0, 1])
            from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
            if torch.cuda.device_count() >= RANKS:
                whole = torch.arange(24.0).reshape(4, 6)
                rows = distribute_tensor(whole, init_device_mesh("cuda", (RANKS,)), [Shard(0)])
                self.same((rows @ rows.T).full_tensor(), whole @ whole.T)
            dist.barrier()
        self.on_gpus(body)

    def test_transformers_tp_plan_auto(self):
        def body(rank, device):
            from transformers import LlamaConfig, LlamaForCausalLM  # not before the fork: it asks CUDA
            from transformers.distributed import DistributedConfig
            ids = torch.randint(0, 128, (2, 9), generator=torch.Generator().manual_seed(3))
            torch.manual_seed(1)
            whole = LlamaForCausalLM(LlamaConfig(vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                                                 num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=64)).eval()
            whole.save_pretrained(folder)  # by rank 0 only
            dist.barrier()
            with torch.no_grad(), mock.patch.dict(os.environ, LOCAL_RANK=str(device.index)):
                model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                         distributed_config=DistributedConfig(tp_plan="auto"))
                self.assertEqual(model.device.type, "cuda")
                self.assertEqual(tuple(model.model.layers[0].self_attn.o_proj.weight.to_local().shape), (64, 64 // RANKS))
                torch.testing.assert_close(model(ids.to(device)).logits.cpu(), whole(ids).logits, atol=1e-3, rtol=1e-3)
        with tempfile.TemporaryDirectory() as folder:
            self.on_gpus(body)

    def test_libnccl_as_pynccl_calls_it(self):
        from tensorwire import library
        path = os.path.join(os.path.dirname(library.path()), "tensorwire/nccl/libnccl.so.2")

        def body(rank, device):
            nccl, shared = pynccl.Library(path), [None]

            def share(identifier):
                shared[0] = identifier
                dist.broadcast_object_list(shared, src=0)
                return shared[0]

            _, comm = pynccl.start(nccl, share, rank, RANKS)
            x, total = torch.full((1000,), rank + 1.0, device=device), torch.empty(1000, device=device)

            def all_reduce():
                nccl.ncclAllReduce(x.data_ptr(), total.data_ptr(), 1000, pynccl.Type.FLOAT32, pynccl.Op.SUM, comm,
                                   torch.cuda.current_stream().cuda_stream)
            all_reduce()  # the warm-up
            torch.cuda.synchronize()
            self.same(total, torch.full((1000,), 3.0))
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                all_reduce()
            x.fill_(rank)
            graph.replay()
            self.same(total, torch.ones(1000))
            nccl.ncclCommDestroy(comm)
        self.on_gpus(body)


if __name__ == "__main__":
    unittest.main()

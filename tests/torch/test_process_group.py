"""The torch.distributed backend: its collectives, groups, messages and errors, DTensor, and Transformers' tensor parallelism."""
import datetime
import os
import pathlib
import subprocess
import sys
import tempfile
import tomllib
import unittest
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

from ranks import RanksTestCase

PROJECT = pathlib.Path(__file__).resolve().parents[2]
ReduceOp = dist.ReduceOp


class ProcessGroup(RanksTestCase):
    def same(self, got, want):
        torch.testing.assert_close(got, want, atol=0, rtol=0)

    def test_reductions(self):
        def body(rank, ranks):
            given = [torch.tensor([[1, 6, 3], [4, 5 + r, 2 - r]]) for r in range(ranks)]
            stack = torch.stack(given)
            wanted = {ReduceOp.SUM: stack.sum(0), ReduceOp.PRODUCT: stack.prod(0), ReduceOp.MIN: stack.min(0).values,
                      ReduceOp.MAX: stack.max(0).values}
            for dtype in (torch.float32, torch.bfloat16, torch.int32, torch.int64, torch.float64, torch.uint8):
                for op, want in wanted.items():
                    mine = given[rank].to(dtype, copy=True)
                    dist.all_reduce(mine, op)
                    self.same(mine, want.to(dtype))
            mine = given[rank].float()
            dist.all_reduce(mine, ReduceOp.AVG)
            self.same(mine, stack.float().mean(0))
            mine = torch.tensor([rank == 0, False, True])
            dist.all_reduce(mine, ReduceOp.SUM)
            self.same(mine, torch.tensor([True, False, True]))
            bits = torch.tensor([1 << rank])
            dist.all_reduce(bits, ReduceOp.BOR)
            self.same(bits, torch.tensor([2**ranks - 1]))
            mine = given[rank].float().t()
            dist.reduce(mine, dst=1)
            self.same(mine, (wanted[ReduceOp.SUM] if rank == 1 else given[rank]).float().t())
            into = torch.empty(2)
            dist.reduce_scatter_tensor(into, torch.arange(2.0 * ranks))
            self.same(into, ranks * torch.arange(2.0 * ranks).chunk(ranks)[rank])
            into = torch.empty(2, dtype=torch.float64)
            dist.reduce_scatter(into, [torch.full((2,), r + 0.5, dtype=torch.float64) for r in range(ranks)], ReduceOp.MAX)
            self.same(into, torch.full((2,), rank + 0.5, dtype=torch.float64))
        self.on_ranks(2, body)

    def test_moves(self):
        def body(rank, ranks):
            for dtype in (torch.float16, torch.float64, torch.uint8, torch.bool):
                given = [torch.tensor([[r, 1, 0]]).to(dtype) for r in range(ranks)]
                into = torch.empty(ranks, 3, dtype=dtype)
                dist.all_gather_into_tensor(into, given[rank])
                self.same(into, torch.cat(given))
                intos = [torch.empty_like(given[0]) for _ in range(ranks)]
                dist.all_gather(intos, given[rank])
                self.same(torch.cat(intos), torch.cat(given))
                mine = given[rank].clone()
                dist.broadcast(mine, src=1)
                self.same(mine, given[1])
                dist.scatter(mine, given if rank == 0 else None, src=0)
                self.same(mine, given[rank])
                dist.gather(mine, intos if rank == 1 else None, dst=1)
                self.same(torch.cat(intos), torch.cat(given))
            if hasattr(dist, "gather_single"):  # since 2.15
                into = torch.empty(ranks * 2)
                dist.gather_single(torch.full((2,), float(rank)), into if rank == 0 else None, dst=0)
                self.same(into[::2], torch.arange(float(ranks)) if rank == 0 else into[::2])
            uneven = [torch.empty(r + 1) for r in range(ranks)]
            dist.all_gather(uneven, torch.full((rank + 1,), float(rank)))
            self.same(uneven, [torch.full((r + 1,), float(r)) for r in range(ranks)])
            into = torch.empty(2 * ranks, dtype=torch.int64)
            dist.all_to_all_single(into, torch.arange(2 * ranks) + 100 * rank)
            self.same(into.view(ranks, 2), torch.stack([torch.arange(2) + 2 * rank + 100 * r for r in range(ranks)]))
            objects = [None] * ranks
            dist.all_gather_object(objects, {"rank": rank})
            self.same(objects, [{"rank": r} for r in range(ranks)])
            dist.barrier()
        self.on_ranks(2, body)

    def test_messages_wait_for_each_other_only(self):
        def body(rank, ranks):
            big = torch.full((1 << 20,), float(rank))  # more than the library holds for a rank that has not called yet
            into, odd = torch.empty_like(big), torch.empty(3, dtype=torch.uint8)
            peer = 1 - rank
            works = [dist.isend(big, peer), dist.irecv(into, peer), dist.isend(torch.full_like(odd, rank), peer),
                     dist.irecv(odd, peer)]
            for work in reversed(works):
                work.wait()
            self.same(into, torch.full_like(into, peer))
            self.same(odd, torch.full_like(odd, peer))
            if rank == 0:
                dist.send(big, 1)
            else:
                dist.recv(into, 0)
                self.same(into, torch.zeros_like(into))
            for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, big[:2], peer), dist.P2POp(dist.irecv, into[:2], peer)]):
                work.wait()
            self.same(into[:2], torch.full((2,), float(peer)))
        self.on_ranks(2, body)

    def test_groups_of_some_ranks(self):
        def body(rank, ranks):
            pairs = [dist.new_group([0, 2]), dist.new_group([1])]
            mine = pairs[rank % 2]
            x = torch.tensor([float(rank)])
            dist.all_reduce(x, group=mine)
            self.same(x, torch.tensor([2.0 if rank != 1 else 1.0]))
            self.same(torch.ops.tensorwire.all_reduce(x, mine.group_name), x * (2 if rank != 1 else 1))
            dist.destroy_process_group(mine)
            with self.assertRaisesRegex(ValueError, "has no group"):
                torch.ops.tensorwire.all_reduce(x, mine.group_name)
        self.on_ranks(3, body)

    def test_functional_collectives_and_dtensor(self):
        def body(rank, ranks):
            group = dist.group.WORLD
            x = torch.full((2, 2), float(rank))
            self.same(functional.all_reduce(x, "sum", group) + 0, torch.full((2, 2), 1.0))
            self.same(functional.all_gather_tensor(x, 0, group)[:, 0] + 0, torch.tensor([0.0, 0.0, 1.0, 1.0]))
            self.same(functional.reduce_scatter_tensor(x, "sum", 0, group) + 0, torch.full((1, 2), 1.0))
            self.same(functional.all_to_all_single(x, None, None, group)[:, 0] + 0, torch.tensor([0.0, 1.0]))
            mesh = init_device_mesh("cpu", (ranks,))
            whole = torch.arange(24.0).reshape(4, 6)
            by_row = distribute_tensor(whole, mesh, [Shard(0)])
            self.same((by_row @ by_row.T).full_tensor(), whole @ whole.T)
            self.same(by_row.redistribute(mesh, [Shard(1)]).to_local(), whole.chunk(ranks, 1)[rank])
            self.same(by_row.sum(0).redistribute(mesh, [Replicate()]).to_local(), whole.sum(0))
        self.on_ranks(2, body)

    def test_pytorch_finds_it_by_the_wheels_entry_point(self):
        project = tomllib.loads((PROJECT / "python/pyproject.toml").read_text())["project"]
        (entry,) = project["entry-points"]["torch.backends"].items()
        with tempfile.TemporaryDirectory() as site:
            metadata = pathlib.Path(site, "tensorwire-0.dist-info")
            metadata.mkdir()
            (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: tensorwire\nVersion: 0\n")
            (metadata / "entry_points.txt").write_text("[torch.backends]\n{} = {}\n".format(*entry))
            program = "import torch.distributed; print('tensorwire' in torch.distributed.Backend.backend_list)"
            done = subprocess.run([sys.executable, "-c", program],
                                  env={**os.environ, "PYTHONPATH": os.pathsep.join([site, os.environ["PYTHONPATH"]])},
                                  text=True, capture_output=True, timeout=100)
        self.assertEqual("True\n", done.stdout, done.stderr)

    def test_a_rank_that_does_not_come_is_named(self):
        def body(rank, ranks):
            with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, TENSORWIRE_BOOTSTRAP_TIMEOUT="200ms"):
                store = dist.FileStore(f"{folder}/store", 2)
                from tensorwire.process_group import ProcessGroup as Group
                with self.assertRaisesRegex(RuntimeError, "rank 1|1 of 2"):
                    Group(store, 0, 2, datetime.timedelta(seconds=1), "lonely")
        self.on_ranks(1, body)


class TransformersLlama(RanksTestCase):
    def test_tp_plan_auto_gives_what_the_whole_model_gives(self):
        from transformers import LlamaConfig, LlamaForCausalLM
        from transformers.distributed import DistributedConfig
        ids = torch.randint(0, 128, (2, 9), generator=torch.Generator().manual_seed(3))
        with tempfile.TemporaryDirectory() as folder:
            torch.manual_seed(1)
            whole = LlamaForCausalLM(LlamaConfig(vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                                                 num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=64))
            whole.save_pretrained(folder)
            with torch.no_grad():
                want = whole.eval()(ids).logits

            def body(rank, ranks):
                model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, distributed_config=DistributedConfig(tp_plan="auto"))
                with torch.no_grad():
                    got = model(ids).logits
                torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
                shares = model.model.layers[0].self_attn.o_proj.weight.to_local().shape
                self.assertEqual(tuple(shares), (64, 32))
            self.on_ranks(2, body)


if __name__ == "__main__":
    unittest.main()

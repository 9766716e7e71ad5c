#!/usr/bin/env bash
# Tests and benchmarks on this machine's GPUs. In the tarball of `./dev package --gpu` it is `dev` itself; in the repository
# `./dev test --gpu` and `./dev bench --gpu` build what it needs and call it with TENSORWIRE_TREE, their build folder.
# usage: dev test|bench --gpu [--quick] [--out FOLDER]
# NCCL and cuBLASLt are PyTorch's where there is one (python3), else the loader's.
set -euo pipefail

fail() {
  printf 'dev: %s\n' "$*" >&2
  exit 1
}

[[ $# -ge 2 && $2 == --gpu ]] || fail "usage: dev test|bench --gpu [--quick] [--out FOLDER]"
what=$1
shift 2
quick=false out=
while [[ $# -gt 0 ]]; do
  case $1 in
    --quick) quick=true ;;
    --out)
      [[ $# -ge 2 ]] || fail "--out needs a folder"
      out=$2
      shift
      ;;
    *) fail "unknown argument: $1" ;;
  esac
  shift
done

tree=${TENSORWIRE_TREE:-$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)}
export LD_LIBRARY_PATH=$tree/lib:$tree/lib/tensorwire/bundled${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
out=${out:-gpu-results}
mkdir -p "$out"
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
[[ $gpus -gt 0 ]] || fail "there is no GPU here"

failed=()
# stage NAME COMMAND...: its output is shown and kept.
stage() {
  local name=$1 began=$SECONDS
  shift
  printf '\n== %s\n' "$name"
  if "$@" 2>&1 | tee "$out/$name.txt"; then
    printf '== %s: passed, %d s\n' "$name" $((SECONDS - began))
  else
    printf '== %s: FAILED, %d s\n' "$name" $((SECONDS - began))
    failed+=("$name")
  fi
}

# Where PyTorch's copy of a library lies; nothing: the loader knows better.
torch_library() {
  python3 - "$1" 2>/dev/null <<'PYTHON' || true
import glob, importlib.util, sys
spec = importlib.util.find_spec("nvidia")
print(next((f for path in spec.submodule_search_locations for f in glob.glob(path + "/*/lib/" + sys.argv[1])), ""))
PYTHON
}

# What travels in bin/ of the tarball lies in scripts/ and bench/gpu/ of the repository.
companion() {
  local here path
  here=$(dirname "${BASH_SOURCE[0]}")
  for path in "$tree/bin/$1" "$here/$1" "$here/../bench/gpu/$1"; do
    if [[ -e $path ]]; then
      printf '%s\n' "$path"
      return
    fi
  done
  fail "$1 is missing"
}

# PyTorch's NCCL, unmodified, over the user-space HCA and over its sockets: on this host, and between two network namespaces.
nccl_over_hca() {
  local table hosts soft=("$tree/bin/tensorwire" soft --) turns=1000 way
  if [[ $gpus -lt 2 ]] || ! python3 -c 'import torch' 2>/dev/null; then
    echo 'NCCL over the HCA is left out: it takes two GPUs and PyTorch'
    return
  fi
  if $quick; then turns=200; fi
  table=$(companion nccl_table.py) hosts=$(companion gpu_hosts.sh)
  for way in IB Socket; do
    stage "nccl-hca-$way" timeout 300 env NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_NET="$way" "${soft[@]}" python3 -m torch.distributed.run \
      --standalone --nproc-per-node 2 "$table" --turns "$turns" --expect "$way" --json "$out/nccl-hca-$way.json"
    if [[ $EUID -ne 0 ]]; then continue; fi
    stage "hosts-nccl-hca-$way" timeout 300 env NCCL_NET="$way" "$hosts" "${soft[@]}" python3 "$table" --gpu '{rank}' --turns "$turns" \
      --expect "$way" --json "$out/hosts-nccl-hca-$way.json"
  done
}

# Tensorwire's operators, PyTorch's NCCL and symmetric memory, FlashInfer: beside each other in the same processes.
beside_pytorch() {
  local table here
  if [[ $gpus -lt 2 ]] || ! python3 -c 'import torch' 2>/dev/null; then
    echo 'PyTorch beside Tensorwire is left out: it takes two GPUs and PyTorch'
    return
  fi
  table=$(companion torch_table.py) here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
  stage torch env PYTHONPATH="$here/python:$here/../python" TENSORWIRE_LIBRARY="$tree/lib/libtensorwire.so.0" \
    python3 "$table" --processes "$1" --turns "$2" --json "$out/torch.json"
}

about() {
  date -u '+%F %T UTC'
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
  nvidia-smi topo -m 2>/dev/null | head -n $((gpus + 1)) || true
}

tests() {
  local epochs=1000000 mistaken=400000
  if $quick; then epochs=50000; fi  # one of the mistakes took 55,808 epochs to show
  stage tests "$tree/bin/test_gpu" --gtest_brief=1
  hosts_tests
  stage litmus "$tree/bin/gpu_litmus" --epochs "$epochs" --mistakes "$mistaken"
  # It runs one kernel at a time on a GPU, so ranks that share one would wait for each other in vain.
  if [[ $gpus -ge 2 ]] && command -v compute-sanitizer >/dev/null; then
    stage memcheck compute-sanitizer --tool memcheck --error-exitcode 9 "$tree/bin/test_gpu" --gtest_brief=1 \
      --gtest_filter='Ranks/AllReduce.AnyAlignment*/0:Ranks/AddNorm*/0:Ranks/Messages.*/0:Ways/GpuApi.Every*2'
  fi
}

# The paths between hosts from one network namespace to another: each test sees by counters that its tensors left as packets.
hosts_tests() {
  if [[ $EUID -ne 0 ]] || ! command -v ip >/dev/null; then
    echo 'tests between two network namespaces are left out: they need root and iproute2'
    return
  fi
  local filter='Ranks/GpuProxy.*proxy2on1*:Ranks/GpuProxy.*hierarchical4on2*:Ways/GpuApi.*proxy2:Ways/GpuApi.*hierarchical4'
  stage hosts-tests timeout 900 env TW_GPU_TEST_HOSTS=1 "$(companion gpu_hosts.sh)" "$tree/bin/test_gpu" --gtest_brief=1 \
    --gtest_filter="$filter"
  stage hosts-tests-rails timeout 300 env TW_GPU_TEST_HOSTS=1 TENSORWIRE_RAILS=soft1,soft2 "$(companion gpu_hosts.sh)" \
    "$tree/bin/test_gpu" --gtest_brief=1 --gtest_filter='Ranks/GpuProxy.*4on2'
}

benches() {
  local nccl cublas processes=5 turns=10 process
  nccl=$(torch_library 'libnccl.so.2')
  cublas=$(torch_library 'libcublasLt.so.13')
  local ways=tensorwire,nccl,nccl-window
  if $quick; then processes=1 turns=4; fi
  if [[ $gpus -lt 2 ]]; then ways=tensorwire; fi
  for ((process = 1; process <= processes; process++)); do
    stage "all-reduce-$process" "$tree/bin/gpu_allreduce" --ways "$ways" --turns "$turns" ${nccl:+--nccl "$nccl"} \
      --json "$out/all-reduce-$process.json"
  done
  stage add-norm "$tree/bin/gpu_allreduce" --ways add-norm,tensorwire --turns "$turns" \
    --bytes 16384,65536,262144,1310720 --json "$out/add-norm.json"
  beside_pytorch "$processes" "$turns"
  stage rdma "$tree/bin/gpu_rdma"
  stage round-trip "$tree/bin/gpu_round_trip"
  nccl_over_hca
  local decode=fused,unfused,nccl,none
  if [[ $gpus -lt 2 ]]; then decode=fused,unfused,none; fi
  if [[ $gpus -ge 2 && -n $nccl ]] && command -v ip >/dev/null; then between_hosts "$nccl" "$turns"; fi
  stage decode "$tree/bin/gpu_decode" --ways "$decode" ${nccl:+--nccl "$nccl"} ${cublas:+--cublas "$cublas"} \
    --json "$out/decode.json"
}

# Ranks in two network namespaces, a GPU each, packets between them: Tensorwire's windows in pinned memory and on the GPU, one
# rail and four; NCCL over sockets, as it is and tuned.
between_hosts() {
  local nccl=$1 hosts
  hosts=("$(companion gpu_hosts.sh)" "$tree/bin/gpu_between_hosts" --rank '{rank}' --device '{rank}' --address 10.77.0.1 --turns "$2"
    --bytes '8192,65536,262144,1048576,8388608')
  local both=(--ways 'tensorwire,nccl' --nccl "$nccl")
  export NCCL_SOCKET_IFNAME=tw NCCL_IB_DISABLE=1
  stage hosts-sockets env TENSORWIRE_WINDOWS=host "${hosts[@]}" "${both[@]}" --json "$out/hosts-sockets.json"
  stage hosts-sockets-tuned env TENSORWIRE_WINDOWS=gpu NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=4 "${hosts[@]}" \
    "${both[@]}" --json "$out/hosts-sockets-tuned.json"
  local rails=TENSORWIRE_RAILS=soft1,soft2,soft3,soft4
  stage hosts-rails-pinned env "$rails" TENSORWIRE_WINDOWS=host "${hosts[@]}" --json "$out/hosts-rails-pinned.json"
  stage hosts-rails-gpu env "$rails" TENSORWIRE_WINDOWS=gpu "${hosts[@]}" --json "$out/hosts-rails-gpu.json"
}

about | tee "$out/about.txt"
case $what in
  test) tests ;;
  bench) benches ;;
  *) fail "unknown command: $what" ;;
esac
[[ ${#failed[@]} -eq 0 ]] || fail "failed: ${failed[*]}"

#!/usr/bin/env bash
# Runs a program as one rank in each of two network namespaces that a veth pair joins: two hosts on one machine. Needs root
# and iproute2. {rank} in the arguments becomes 0 and 1. The environment says the rank as torchrun does; NCCL takes them for two
# hosts. Of the four user-space HCAs of the veth, soft1 to soft4, the one on the route to the other is chosen.
# usage: gpu_hosts.sh PROGRAM ARGUMENTS...
set -euo pipefail

fail() {
  printf 'gpu_hosts.sh: %s\n' "$*" >&2
  exit 1
}

[[ $# -ge 1 ]] || fail "usage: gpu_hosts.sh PROGRAM ARGUMENTS..."
command -v ip >/dev/null || fail "there is no \`ip\` here; install iproute2"
names=("tw$$-0" "tw$$-1")

trap 'for name in "${names[@]}"; do ip netns delete "$name" 2>/dev/null || true; done' EXIT
for name in "${names[@]}"; do
  ip netns add "$name" || fail "network namespaces are not allowed here"
  ip -n "$name" link set lo up
done
ip -n "${names[0]}" link add tw0 type veth peer name tw1 netns "${names[1]}" || fail "veth pairs are not allowed here"
for rank in 0 1; do
  ip -n "${names[$rank]}" link set "tw$rank" mtu "${GPU_HOSTS_MTU:-9000}" up
  for rail in 0 1 2 3; do  # an HCA for each address: soft1 to soft4
    ip -n "${names[$rank]}" address add "10.77.$rail.$((rank + 1))/24" dev "tw$rank"
  done
done

pids=()
for rank in 0 1; do
  RANK=$rank WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=10.77.0.1 MASTER_PORT=29507 \
    NCCL_HOSTID=host$rank ip netns exec "${names[$rank]}" "${@//\{rank\}/$rank}" &
  pids+=($!)
done
status=0
for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
exit "$status"

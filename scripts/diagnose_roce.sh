#!/bin/sh
# A first look at why RoCEv2 is slow, drops to TCP, or does not come up: GID tables, lossless priorities, pauses and ECN,
# GPUDirect. Needs nothing but a shell; changes nothing; says "unknown" where something cannot be read.
# Where Tensorwire is installed, `tensorwire doctor` sees more, and says what it read and what to do.
#
# usage: diagnose_roce.sh [ROOT]      ROOT: a copy of another host's files (default: this host)
# exit status: 0 nothing found, 1 something to look at
set -u

root=${1:-}
found=0

section() { printf '\n== %s\n' "$*"; }
note() { printf '   %s\n' "$*"; }
# warn TEXT REMEDY
warn() {
  found=1
  printf ' ! %s\n   -> %s\n' "$1" "$2"
}
# word FILE: its first line, or nothing.
word() { head -n 1 "$root$1" 2>/dev/null; }
# have COMMAND: on this host only; a copy has no tools.
have() { [ -z "$root" ] && command -v "$1" >/dev/null 2>&1; }

# --- 1. GIDs: an index that names a RoCE v1 or dead entry fails at start or falls back to TCP ------------------------

# usable GID: routable, not fe80:: and not all zero.
usable() {
  case $1 in
    fe80:* | 0000:0000:0000:0000:0000:0000:0000:0000) return 1 ;;
    *) return 0 ;;
  esac
}

# gids DEVICE PORT
gids() {
  at=/sys/class/infiniband/$1/ports/$2
  best=
  for file in "$root$at"/gids/*; do
    index=${file##*/}
    gid=$(word "$at/gids/$index")
    type=$(word "$at/gid_attrs/types/$index")
    [ -n "$type" ] || continue
    note "$1 port $2 gid $index  $gid  $type  $(word "$at/gid_attrs/ndevs/$index")"
    if [ "$type" = "RoCE v2" ] && usable "$gid" && [ -z "$best" ]; then best=$index; fi
  done
  if [ -z "$best" ]; then
    warn "$1 port $2 has no RoCE v2 entry with a routable address" "give its interface an address: ip address add ..."
    return
  fi
  pinned=${NCCL_IB_GID_INDEX:-}
  if [ -n "$pinned" ] && [ "$pinned" != -1 ]; then
    type=$(word "$at/gid_attrs/types/$pinned")
    gid=$(word "$at/gids/$pinned")
    if [ "$type" != "RoCE v2" ] || ! usable "$gid"; then
      warn "NCCL_IB_GID_INDEX=$pinned is ${type:-empty} ($gid) on $1" "unset it, or set it to $best"
    fi
  fi
}

# --- 2. Lossless priority: PFC and ECN belong together --------------------------------------------------------------

# counter NAME: from the text of `ethtool -S` in $statistics.
counter() { printf '%s\n' "$statistics" | sed -n "s/^ *$1: *\([0-9][0-9]*\)$/\1/p" | head -n 1; }

# lossless INTERFACE
lossless() {
  pfc=
  if have dcb; then pfc=$(dcb pfc show dev "$1" 2>/dev/null | sed -n 's/^prio-pfc //p'); fi
  case $pfc in
    '') note "$1: which priorities are lossless is unknown (no dcb, or its driver does not say)" ;;
    *:on*) note "$1: PFC $pfc" ;;
    *) warn "$1: PFC is off for all priorities" "tensorwire configure $1, or scripts/configure_roce.sh $1" ;;
  esac
  ecn=$root/sys/class/net/$1/ecn
  if [ -d "$ecn" ]; then
    for side in np rp; do
      if [ "$(word "/sys/class/net/$1/ecn/roce_$side/enable/3")" = 0 ]; then
        warn "$1: ECN ($side) is off for priority 3: PFC alone lets one hot port pause the fabric" \
          "echo 1 >/sys/class/net/$1/ecn/roce_$side/enable/3"
      fi
    done
  else
    note "$1: whether ECN is on is unknown (only MLNX_OFED shows it here)"
  fi
  statistics=
  if have ethtool; then statistics=$(ethtool -S "$1" 2>/dev/null); fi
  for priority in 0 1 2 3 4 5 6 7; do
    sent=$(counter "tx_prio${priority}_pause")
    received=$(counter "rx_prio${priority}_pause")
    if [ "${sent:-0}" -gt 0 ] || [ "${received:-0}" -gt 0 ]; then
      note "$1: priority $priority was paused ${received:-?} times, and paused the switch ${sent:-?} times, since boot"
    fi
  done
  if have ethtool && ethtool -a "$1" 2>/dev/null | grep -Eq '^(RX|TX):.*on$'; then
    warn "$1: 802.3x pause is on and stops all priorities at once" "ethtool -A $1 autoneg off rx off tx off"
  fi
}

# --- 3. GPUDirect: the tensor should not pass through host memory -----------------------------------------------------

gpudirect() {
  if [ ! -e "$root/proc/driver/nvidia/version" ]; then
    note "no NVIDIA driver"
    return
  fi
  flavour=closed
  if grep -q 'Open Kernel Module' "$root/proc/driver/nvidia/version"; then flavour=open; fi
  note "NVIDIA driver: $flavour kernel modules"
  peermem=
  for file in /sys/module/nvidia_peermem/version /sys/kernel/mm/memory_peers/nv_mem/version \
    /sys/kernel/mm/memory_peers/nv_mem_nc/version; do
    if [ -e "$root$file" ]; then peermem=$file; fi
  done
  if [ -n "$peermem" ]; then
    note "peer memory: $peermem"
  elif [ "$flavour" = closed ]; then
    warn "neither nvidia-peermem nor DMA-BUF (closed kernel modules): GPUDirect is off" "modprobe nvidia_peermem"
  else
    note "no nvidia-peermem; DMA-BUF serves instead where kernel (5.12) and NIC driver have it"
  fi
  if ! have lspci; then
    note "access control of PCI bridges (ACS) is unknown: no lspci"
  elif [ "$(id -u)" -ne 0 ]; then
    note "access control of PCI bridges (ACS) is unknown: only root may read it"
  elif lspci -vvv 2>/dev/null | grep 'ACSCtl:' | grep -Eq 'ReqRedir\+|CmpltRedir\+|UpstreamFwd\+'; then
    warn "a PCI bridge redirects peer-to-peer traffic through the CPU (ACS)" \
      "turn ACS off in the firmware, or boot with pci=disable_acs_redir=..."
  fi
}

# ---------------------------------------------------------------------------------------------------------------------

section "RDMA devices and GIDs"
devices=
for device in "$root"/sys/class/infiniband/*; do
  [ -d "$device" ] || continue
  devices=1
  name=${device##*/}
  for port in "$device"/ports/*; do
    number=${port##*/}
    layer=$(word "/sys/class/infiniband/$name/ports/$number/link_layer")
    state=$(word "/sys/class/infiniband/$name/ports/$number/state")
    note "$name port $number: $state, $layer"
    case $layer:$state in
      Ethernet:*ACTIVE*) gids "$name" "$number" ;;
      *) ;;
    esac
  done
done
if [ -z "$devices" ]; then
  warn "there is no RDMA device: NCCL will use TCP sockets" "load the NIC's RDMA driver (mlx5_ib, bnxt_re, irdma)"
fi
if [ -n "$devices" ] && [ -z "$root" ] && [ ! -d /dev/infiniband ]; then
  warn "/dev/infiniband is missing, as in a container without these devices" "docker run --device /dev/infiniband ..."
fi

section "Lossless priority"
interfaces=$(cat "$root"/sys/class/infiniband/*/ports/*/gid_attrs/ndevs/* 2>/dev/null | sort -u)
if [ -z "$interfaces" ]; then note "no interface of an RDMA device"; fi
for interface in $interfaces; do lossless "$interface"; done
case ${NCCL_IB_TC:-} in
  '' | 104 | 105 | 106) ;;
  26) warn "NCCL_IB_TC=26 is a DSCP where the whole traffic class is wanted" "NCCL_IB_TC=104" ;;
  *) note "NCCL_IB_TC=$NCCL_IB_TC: DSCP $((NCCL_IB_TC / 4))" ;;
esac

section "GPUDirect"
gpudirect

section "Limits"
locked=$(sed -n 's/^Max locked memory *\([a-z0-9]*\).*/\1/p' "$root/proc/self/limits" 2>/dev/null)
case $locked in
  '') note "locked memory: unknown" ;;
  unlimited) note "locked memory: unlimited" ;;
  *)
    if [ "$locked" -lt 1073741824 ]; then
      warn "locked memory is limited to $locked bytes: registering memory will fail" \
        "ulimit -l unlimited (limits.conf; of services: LimitMEMLOCK)"
    fi
    ;;
esac

printf '\n'
if [ "$found" -eq 0 ]; then
  echo "nothing found; tensorwire doctor looks closer"
else
  echo "see the lines with !"
fi
exit "$found"

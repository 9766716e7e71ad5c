#!/bin/sh
# Configures an Ethernet interface for RoCEv2: PFC on priority 3 only, DSCP 26 leads to it, CNPs (DSCP 48) to a
# priority of their own, global pause off. Without --apply it shows what it would do.
#
# `tensorwire configure --emit-script` wrote this file from its recipes. Where Tensorwire is installed, use
# `tensorwire configure`: it reads first, changes only what differs, reads back, and can take everything back.
#
# usage: configure_roce.sh [--apply] INTERFACE
set -eu

apply=false
if [ "${1:-}" = --apply ]; then
  apply=true
  shift
fi
if [ $# -ne 1 ]; then
  echo "usage: $0 [--apply] INTERFACE" >&2
  exit 2
fi
if=$1
net=/sys/class/net/$if
if [ ! -e "$net" ]; then
  echo "$0: $if: there is no such interface; ip link shows them" >&2
  exit 1
fi
if [ -e "$net/device/physfn" ]; then
  echo "$0: $if: it is a virtual function; configure the physical port" >&2
  exit 1
fi
if pgrep -x lldpad >/dev/null 2>&1; then
  echo "$0: lldpad runs and would set it its own way: systemctl disable --now lldpad" >&2
  exit 1
fi

# The RDMA device of this interface, and its port.
dev='' port=1
for file in /sys/class/infiniband/*/ports/*/gid_attrs/ndevs/*; do
  if [ "$(cat "$file" 2>/dev/null)" = "$if" ]; then
    port=${file%/gid_attrs/*} port=${port##*/}
    dev=${file#/sys/class/infiniband/} dev=${dev%%/*}
    break
  fi
done

pci=$(basename "$(readlink -f "$net/device")")

# Another RDMA interface is in one of this one's IPv4 subnets.
shares_subnet() {
  for file in /sys/class/infiniband/*/ports/*/gid_attrs/ndevs/*; do
    other=$(cat "$file" 2>/dev/null) || continue
    [ "$other" != "$if" ] || continue
    if awk -v one="$if" -v two="$other" '
      $3 == "00000000" && $8 != "00000000" && $1 == one { own[$2 $8] = 1 }
      $3 == "00000000" && $8 != "00000000" && $1 == two { theirs[$2 $8] = 1 }
      END { for (subnet in own) if (subnet in theirs) exit 0; exit 1 }' /proc/net/route; then
      return 0
    fi
  done
  return 1
}

failed() {
  echo "$0: $if: \"$*\" failed; what stands above it was done" >&2
  exit 1
}

# run COMMAND...: shows it, and with --apply does it.
run() {
  echo "$*"
  if ! $apply || "$@"; then return; fi
  # dcb sometimes says "Protocol error" of what the driver did: where a second begins in its middle.
  case "$1 ${2:-}" in
    "dcb ets" | "dcb pfc") if "$@"; then return; fi ;;
  esac
  failed "$*"
}

# put FILE TEXT: writes into a file of the kernel's, where it has that.
put() {
  [ -e "$1" ] || return 0
  echo "echo $2 >$1"
  if $apply; then echo "$2" >"$1" || failed "echo $2 >$1"; fi
}

# mlx5 with MLNX_OFED
mlx5_core_ofed() {
  run ip link set dev "$if" mtu 9000
  run mlnx_qos -i "$if" -d os
  if ethtool -a "$if" 2>/dev/null | grep -q '^[RT]X:.*on$'; then
    run ethtool -A "$if" autoneg off rx off tx off
  fi
  run mlnx_qos -i "$if" --trust dscp
  run mlnx_qos -i "$if" --dscp2prio set,26,3
  run mlnx_qos -i "$if" --dscp2prio set,48,6
  run mlnx_qos -i "$if" --prio_tc 0,1,2,3,4,5,6,7 --tsa ets,ets,ets,ets,ets,ets,strict,ets --tcbw 9,9,8,50,8,8,0,8
  put "/sys/class/net/$if/ecn/roce_np/enable/3" 1
  put "/sys/class/net/$if/ecn/roce_rp/enable/3" 1
  put "/sys/class/net/$if/ecn/roce_np/cnp_dscp" 48
  put "/sys/class/net/$if/ecn/roce_np/cnp_802p_prio" 6
  if [ -n "$dev" ] && [ -d /sys/kernel/config/rdma_cm ]; then
    run mkdir -p "/sys/kernel/config/rdma_cm/$dev"
    put "/sys/kernel/config/rdma_cm/$dev/ports/$port/default_roce_tos" 104
  fi
  put "/proc/sys/kernel/numa_balancing" 0
  if shares_subnet; then
    put "/proc/sys/net/ipv4/conf/$if/arp_ignore" 1
  fi
  if shares_subnet; then
    put "/proc/sys/net/ipv4/conf/$if/arp_announce" 2
  fi
  if shares_subnet; then
    put "/proc/sys/net/ipv4/conf/$if/rp_filter" 2
  fi
  run mlnx_qos -i "$if" --pfc 0,0,0,1,0,0,0,0
}

# mlx5, in-box driver
mlx5_core() {
  run ip link set dev "$if" mtu 9000
  run dcb dcbx set dev "$if" host ieee
  if ethtool -a "$if" 2>/dev/null | grep -q '^[RT]X:.*on$'; then
    run ethtool -A "$if" autoneg off rx off tx off
  fi
  run dcb app replace dev "$if" dscp-prio 26:3 48:6
  run dcb ets set dev "$if" prio-tc 0:0 1:1 2:2 3:3 4:4 5:5 6:6 7:7 tc-tsa 0:ets 1:ets 2:ets 3:ets 4:ets 5:ets 6:strict 7:ets tc-bw 0:9 1:9 2:8 3:50 4:8 5:8 6:0 7:8
  put "/sys/kernel/debug/mlx5/$pci/cc_params/np_cnp_dscp" 48
  if [ -n "$dev" ] && [ -d /sys/kernel/config/rdma_cm ]; then
    run mkdir -p "/sys/kernel/config/rdma_cm/$dev"
    put "/sys/kernel/config/rdma_cm/$dev/ports/$port/default_roce_tos" 104
  fi
  put "/proc/sys/kernel/numa_balancing" 0
  if shares_subnet; then
    put "/proc/sys/net/ipv4/conf/$if/arp_ignore" 1
  fi
  if shares_subnet; then
    put "/proc/sys/net/ipv4/conf/$if/arp_announce" 2
  fi
  if shares_subnet; then
    put "/proc/sys/net/ipv4/conf/$if/rp_filter" 2
  fi
  run dcb pfc set dev "$if" prio-pfc all:off 3:on
}

# Broadcom bnxt
bnxt_en() {
  run ip link set dev "$if" mtu 9000
  run dcb dcbx set dev "$if" host ieee
  if ethtool -a "$if" 2>/dev/null | grep -q '^[RT]X:.*on$'; then
    run ethtool -A "$if" autoneg off rx off tx off
  fi
  run dcb app replace dev "$if" dscp-prio 26:3 48:7
  run dcb app replace dev "$if" dgram-port-prio 4791:3
  run dcb ets set dev "$if" prio-tc 0:0 1:1 2:2 3:3 4:4 5:5 6:6 7:7 tc-tsa 0:ets 1:ets 2:ets 3:ets 4:ets 5:ets 6:ets 7:strict tc-bw 0:9 1:9 2:8 3:50 4:8 5:8 6:8 7:0
  if [ -n "$dev" ] && [ -d /sys/kernel/config/rdma_cm ]; then
    run mkdir -p "/sys/kernel/config/rdma_cm/$dev"
    put "/sys/kernel/config/rdma_cm/$dev/ports/$port/default_roce_tos" 104
  fi
  put "/proc/sys/kernel/numa_balancing" 0
  if shares_subnet; then
    put "/proc/sys/net/ipv4/conf/$if/arp_ignore" 1
  fi
  if shares_subnet; then
    put "/proc/sys/net/ipv4/conf/$if/arp_announce" 2
  fi
  if shares_subnet; then
    put "/proc/sys/net/ipv4/conf/$if/rp_filter" 2
  fi
  run dcb pfc set dev "$if" prio-pfc all:off 3:on
}

driver=$(basename "$(readlink -f "$net/device/driver")")
ofed=false
if [ -d "$net/ecn" ]; then ofed=true; fi
case $driver:$ofed in
  mlx5_core:true) mlx5_core_ofed ;;
  mlx5_core:*) mlx5_core ;;
  bnxt_en:* | bnxt_re:*) bnxt_en ;;
  *)
    echo "$0: $if: how a NIC of the driver $driver is configured is not known" >&2
    exit 1
    ;;
esac
if ! $apply; then echo "# nothing was changed; $0 --apply $if does it"; fi

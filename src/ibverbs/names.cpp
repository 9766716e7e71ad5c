// Texts for enumerators, and InfiniBand rates as numbers.
#include <infiniband/verbs.h>

#include <cstddef>
#include <iterator>

#include "ibverbs/export.hpp"
#include "ibverbs/raw_enum.hpp"

namespace tensorwire::ibverbs {

namespace {

// The words of rdma-core, because people and log filters search for them.
constexpr const char* kStatusNames[] = {
    "success",
    "local length error",
    "local QP operation error",
    "local EE context operation error",
    "local protection error",
    "Work Request Flushed Error",
    "memory management operation error",
    "bad response error",
    "local access error",
    "remote invalid request error",
    "remote access error",
    "remote operation error",
    "transport retry counter exceeded",
    "RNR retry counter exceeded",
    "local RDD violation error",
    "remote invalid RD request",
    "aborted error",
    "invalid EE context number",
    "invalid EE context state",
    "fatal error",
    "response timeout error",
    "general error",
    "TM error",
    "TM software rendezvous",
};
static_assert(std::size(kStatusNames) == IBV_WC_TM_RNDV_INCOMPLETE + 1);

constexpr const char* kEventNames[] = {
    "CQ error",
    "local work queue catastrophic error",
    "invalid request local work queue error",
    "local access violation work queue error",
    "communication established",
    "send queue drained",
    "path migrated",
    "path migration request error",
    "local catastrophic error",
    "port active",
    "port error",
    "LID change",
    "P_Key change",
    "SM change",
    "SRQ catastrophic error",
    "SRQ limit reached",
    "last WQE reached",
    "client reregistration",
    "GID table change",
    "WQ fatal",
};
static_assert(std::size(kEventNames) == IBV_EVENT_WQ_FATAL + 1);

constexpr const char* kNodeNames[] = {"unknown",           "InfiniBand channel adapter",
                                      "InfiniBand switch", "InfiniBand router",
                                      "iWARP NIC",         "usNIC",
                                      "usNIC UDP",         "unspecified"};
constexpr const char* kPortStateNames[] = {"no state change (NOP)", "down", "init", "armed", "active", "active defer"};

template <std::size_t kCount>
const char* name_of(const char* const (&names)[kCount], unsigned value) noexcept {
  return value < kCount ? names[value] : "unknown";
}

struct Rate {
  ibv_rate rate;
  int multiple_of_2500;  ///< of the base rate, rounded
  int mbps;
};
constexpr Rate kRates[] = {
    {IBV_RATE_2_5_GBPS, 1, 2500},     {IBV_RATE_5_GBPS, 2, 5000},         {IBV_RATE_10_GBPS, 4, 10000},
    {IBV_RATE_20_GBPS, 8, 20000},     {IBV_RATE_30_GBPS, 12, 30000},      {IBV_RATE_40_GBPS, 16, 40000},
    {IBV_RATE_60_GBPS, 24, 60000},    {IBV_RATE_80_GBPS, 32, 80000},      {IBV_RATE_120_GBPS, 48, 120000},
    {IBV_RATE_14_GBPS, 6, 14062},     {IBV_RATE_56_GBPS, 22, 56250},      {IBV_RATE_112_GBPS, 45, 112500},
    {IBV_RATE_168_GBPS, 67, 168750},  {IBV_RATE_25_GBPS, 10, 25781},      {IBV_RATE_100_GBPS, 40, 103125},
    {IBV_RATE_200_GBPS, 80, 206250},  {IBV_RATE_300_GBPS, 120, 309375},   {IBV_RATE_28_GBPS, 11, 28125},
    {IBV_RATE_50_GBPS, 20, 53125},    {IBV_RATE_400_GBPS, 160, 425000},   {IBV_RATE_600_GBPS, 240, 637500},
    {IBV_RATE_800_GBPS, 320, 850000}, {IBV_RATE_1200_GBPS, 480, 1275000},
};

}  // namespace

}  // namespace tensorwire::ibverbs

namespace tw = tensorwire::ibverbs;

TENSORWIRE_VERB const char* ibv_wc_status_str(ibv_wc_status status) {
  return tw::name_of(tw::kStatusNames, tw::raw(status));
}
TENSORWIRE_VERB const char* ibv_event_type_str(ibv_event_type event) {
  return tw::name_of(tw::kEventNames, tw::raw(event));
}
TENSORWIRE_VERB const char* ibv_node_type_str(ibv_node_type node_type) {
  return tw::name_of(tw::kNodeNames, tw::raw(node_type));
}
TENSORWIRE_VERB const char* ibv_port_state_str(ibv_port_state port_state) {
  return tw::name_of(tw::kPortStateNames, tw::raw(port_state));
}

TENSORWIRE_VERB int ibv_rate_to_mult(ibv_rate rate) {
  for (const tw::Rate& row : tw::kRates) {
    if (row.rate == tw::raw(rate)) return row.multiple_of_2500;
  }
  return -1;
}

TENSORWIRE_VERB ibv_rate mult_to_ibv_rate(int mult) {
  for (const tw::Rate& row : tw::kRates) {
    if (row.multiple_of_2500 == mult) return row.rate;
  }
  return IBV_RATE_MAX;
}

TENSORWIRE_VERB int ibv_rate_to_mbps(ibv_rate rate) {
  for (const tw::Rate& row : tw::kRates) {
    if (row.rate == tw::raw(rate)) return row.mbps;
  }
  return -1;
}

TENSORWIRE_VERB ibv_rate mbps_to_ibv_rate(int mbps) {
  for (const tw::Rate& row : tw::kRates) {
    if (row.mbps == mbps) return row.rate;
  }
  return IBV_RATE_MAX;
}

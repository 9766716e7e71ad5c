#include "comm/gpu/proxied.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/env.hpp"
#include "base/error.hpp"
#include "base/log.hpp"

namespace tensorwire::comm {

namespace {

/// In the signatures of the carrier's operations, so that they are nobody else's.
constexpr std::uint16_t kCarrier = 1 << 15;
/// A kernel waits for longer than the host, which knows whom for.
constexpr Ps kLongerOnGpu = 5 * kSecond;
constexpr Ps kNever90Days = 90 * 24 * 3600 * kSecond;

cuda::RelayOptions relay_options(const bootstrap::Group& group, int device, const CommOptions& options, bool on_gpu) {
  cuda::RelayOptions made;
  made.rank = group.rank();
  made.ranks = group.world_size();
  made.device = device;
  made.windows_on_gpu = on_gpu;
  made.operation_bound = options.operation_timeout == 0 ? kNever90Days : options.operation_timeout + kLongerOnGpu;
  return made;
}

cuda::CommunicatorOptions alone(int device) {
  cuda::CommunicatorOptions made;
  made.device = device;
  made.exchange = [](std::span<const std::byte> mine) {
    return std::vector<cuda::Bytes>{cuda::Bytes(mine.begin(), mine.end())};
  };
  made.most_lanes = 64;
  return made;
}

CommOptions carrier_options(const CommOptions& options) {
  CommOptions made = options;
  made.communicator_number |= kCarrier;
  made.moves_only = true;
  return made;
}

/// As sysfs names it: "0000:1b:00.0".
std::string pci_address_of(int device) {
  std::array<char, 32> text{};
  if (cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), device) != cudaSuccess) return {};
  std::string address{text.data()};
  std::ranges::transform(address, address.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return address;
}

}  // namespace

Proxied::Proxied(bootstrap::Group& group, int device, const CommOptions& options)
    : group_(group), alone_(alone(device)), carrier_(Communicator::create(group, carrier_options(options))) {
  make_relay(device, options);
  proxy_ = std::make_unique<Proxy>(*relay_, *carrier_, proxy_cpus(pci_address_of(device)));
}

Proxied::~Proxied() {
  proxy_.reset();
  carrier_.reset();
}

void Proxied::make_relay(int device, const CommOptions& options) {
  const std::string asked = env::get_choice("TENSORWIRE_WINDOWS", "auto", {"auto", "gpu", "host"});
  std::string refusal;
  if (asked != "host") {
    relay_ = std::make_unique<cuda::Relay>(relay_options(group_, device, options, true));
    refusal = register_windows();
    if (!refusal.empty() && asked == "gpu") throw Error{"register windows on the GPU", refusal};
  }
  const std::array<std::byte, 1> mine{std::byte{relay_ != nullptr && refusal.empty()}};
  const auto all = group_.all_gather(mine);
  const auto has_none =
      std::ranges::find_if(all, [&](const auto& theirs) { return theirs != all[0] || theirs[0] == std::byte{}; });
  if (has_none == all.end()) {
    log_info("windows of the proxy are memory of the GPU");
    return;
  }
  if (relay_ != nullptr) {
    carrier_->deregister_buffer(relay_->windows_in().data(), relay_->windows_in().size());
    carrier_->deregister_buffer(relay_->windows_out().data(), relay_->windows_out().size());
  }
  if (refusal.empty()) refusal = "another rank has them so";
  log_info(fmt::format("windows of the proxy are pinned host memory: {}", asked == "host" ? "asked for" : refusal));
  relay_ = std::make_unique<cuda::Relay>(relay_options(group_, device, options, false));
  if (refusal = register_windows(); !refusal.empty()) throw Error{"register pinned memory", refusal};
}

std::string Proxied::register_windows() {
  for (const std::span<std::byte> windows : {relay_->windows_in(), relay_->windows_out()}) {
    if (!carrier_->register_buffer(windows.data(), windows.size()) ||
        !carrier_->register_output(windows.data(), windows.size())) {
      return carrier_->error()->line;
    }
  }
  return {};
}

cuda::Status Proxied::launch(const Call& call, cuda::Stream stream) noexcept {
  using collective::Collective;
  switch (call.collective) {
    case Collective::kAllReduce:
      return relay_->all_reduce(call.in, call.out, call.count, call.dtype, call.op, stream);
    case Collective::kReduceScatter:
      return relay_->reduce_scatter(call.in, call.out, call.count, call.dtype, call.op, stream);
    case Collective::kAllGather:
      return relay_->all_gather(call.in, call.out, call.count, call.dtype, stream);
    case Collective::kBroadcast:
      return relay_->broadcast(call.in, call.out, call.count, call.dtype, call.root, stream);
    case Collective::kAllToAll:
      return relay_->all_to_all(call.in, call.out, call.count, call.dtype, stream);
    case Collective::kBarrier:
      return relay_->barrier(stream);
    case Collective::kSendRecv:
      break;
  }
  return cuda::Status::kInvalid;
}

cuda::Status Proxied::launch(const cuda::AddNorm& what, collective::DType dtype, cuda::Stream stream) noexcept {
  if (what.norm_out == nullptr) return cuda::Status::kInvalid;
  const cuda::Status reduced =
      relay_->all_reduce(what.in, what.norm_out, what.rows * what.hidden, dtype, collective::Op::kSum, stream);
  if (reduced != cuda::Status::kOk) return reduced;
  cuda::AddNorm rest = what;
  rest.in = what.norm_out;
  return alone_.all_reduce_add_norm(rest, dtype, stream);
}

void Proxied::abort(int peer) noexcept {
  if (peer == group_.rank()) {
    proxy_->abort("aborted by a request");
  } else {
    relay_->fail(peer);  // an operation under way finds out by itself, and can say more
  }
}

std::optional<CommError> Proxied::failure() const {
  if (const auto said = proxy_->failure()) return said;
  const auto failure = relay_->failure();
  if (!failure) return std::nullopt;
  if (failure->kind == cuda::FailureKind::kTimeout) {
    return CommError{CommErrorKind::kTimeout, failure->peer, "the proxy thread did not bring what a kernel waits for"};
  }
  const auto failed = group_.failed_rank();
  if (!failed) return CommError{CommErrorKind::kAborted, failure->peer, "aborted by a request"};
  return CommError{CommErrorKind::kPeerFailed, failed->rank,
                   fmt::format("{} failed: {}", group_.name(failed->rank), failed->reason)};
}

}  // namespace tensorwire::comm

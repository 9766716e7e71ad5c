#include "comm/gpu/proxied.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <sstream>

#include "base/bytes.hpp"
#include "base/env.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/gpu/bound.hpp"

namespace tensorwire::comm {

namespace {

/// From here on carriers are numbered, so that neither signatures nor roll calls of theirs are anybody else's.
constexpr std::size_t kFirstCarrier = 1 << 15;
/// A kernel waits for longer than the host, which knows whom for.
constexpr Ps kLongerOnGpu = 5 * kSecond;

cuda::RelayOptions relay_options(const bootstrap::Group& group, int device, const CommOptions& options,
                                 std::size_t rails, bool on_gpu, std::uint32_t divisor) {
  cuda::RelayOptions made;
  made.rank = group.rank();
  made.ranks = group.world_size();
  made.device = device;
  made.rails = static_cast<std::uint32_t>(rails);
  made.windows_on_gpu = on_gpu;
  made.divisor = divisor;
  made.operation_bound = bound_on_gpu(options) + kLongerOnGpu;
  return made;
}

CommOptions carrier_options(const CommOptions& options, const std::string& device, std::size_t rail) {
  CommOptions made = options;
  if (!device.empty()) made.device = device;
  made.communicator_number =
      static_cast<std::uint16_t>(kFirstCarrier + options.communicator_number * cuda::kMostRails + rail);
  made.moves_only = true;
  return made;
}

/// TENSORWIRE_RAILS: a device for each rail. @throws Error
std::vector<std::string> rail_devices(bootstrap::Group& group) {
  std::vector<std::string> devices;
  std::istringstream text{env::get("TENSORWIRE_RAILS").value_or("")};
  for (std::string device; std::getline(text, device, ',');) devices.push_back(device);
  if (devices.empty()) devices.emplace_back();
  const std::array<std::byte, 1> mine{static_cast<std::byte>(devices.size())};
  const auto all = group.all_gather(mine);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (std::ranges::equal(all[rank], mine) && devices.size() <= cuda::kMostRails) continue;
    throw Error{"set up rails between GPUs",
                fmt::format("{} has another number of them, or more than {}", group.name(static_cast<int>(rank)),
                            cuda::kMostRails),
                "Give all ranks as many devices in TENSORWIRE_RAILS"};
  }
  return devices;
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

Proxied::Proxied(bootstrap::Group& group, int device, const CommOptions& options, std::uint32_t divisor)
    : group_(group), divisor_(divisor) {
  for (const std::string& rail : rail_devices(group)) {
    rails_.push_back({rail, Communicator::create(group, carrier_options(options, rail, rails_.size())), nullptr});
  }
  make_relay(device, options);
  agree_on_stream_waits();
  const std::vector<int> cpus = proxy_cpus(pci_address_of(device));
  for (std::uint32_t rail = 0; rail < rails_.size(); ++rail) {
    Identity who;
    who.rank = static_cast<std::uint32_t>(group.rank());
    who.ranks = static_cast<std::uint32_t>(group.world_size());
    who.communicator = carrier_options(options, {}, rail).communicator_number;
    who.host = group.host(group.rank());
    rails_[rail].proxy = std::make_unique<Proxy>(*relay_, rail, *rails_[rail].carrier, std::move(who), cpus);
  }
  // What was allocated may wait for an idle GPU, which it is not any more once a rank that shares it launches.
  group.barrier();
}

Proxied::~Proxied() {
  for (Rail& rail : rails_) rail.proxy.reset();
  rails_.clear();
}

void Proxied::make_relay(int device, const CommOptions& options) {
  const std::string asked = env::get_choice("TENSORWIRE_WINDOWS", "auto", {"auto", "gpu", "host"});
  std::string refusal = "asked for";
  if (asked != "host") {
    relay_ = std::make_unique<cuda::Relay>(relay_options(group_, device, options, rails_.size(), true, divisor_));
    refusal = register_windows();
    if (!refusal.empty() && asked == "gpu") throw Error{"register windows on the GPU", refusal};
  }
  const std::array<std::byte, 1> mine{std::byte{refusal.empty()}};
  const auto all = group_.all_gather(mine);
  if (std::ranges::all_of(all, [](const auto& theirs) { return theirs.size() == 1 && theirs[0] == std::byte{1}; })) {
    log_info("windows of the proxy are memory of the GPU");
    return;
  }
  if (relay_ != nullptr) forget_windows();
  log_info(fmt::format("windows of the proxy are pinned host memory: {}",
                       refusal.empty() ? "another rank has them so" : refusal));
  relay_ = std::make_unique<cuda::Relay>(relay_options(group_, device, options, rails_.size(), false, divisor_));
  if (refusal = register_windows(); !refusal.empty()) throw Error{"register pinned memory", refusal};
}

void Proxied::agree_on_stream_waits() {
  constexpr auto kNever = ~std::uint64_t{0};
  const std::string asked = env::get("TENSORWIRE_STREAM_WAITS").value_or("off");
  std::uint64_t from = asked == "off" ? kNever : env::get_bytes("TENSORWIRE_STREAM_WAITS", kNever);
  if (from != kNever) {
    const std::string why_not = relay_->try_stream_waits();
    if (!why_not.empty()) {
      from = kNever;
      log_warn(fmt::format("large all-reduces wait in kernels, not in the stream: {}", why_not));
    }
  }
  std::array<std::byte, sizeof from> mine{};
  store_be64(mine.data(), from);
  for (const auto& theirs : group_.all_gather(mine)) {
    from = std::max(from, theirs.size() == mine.size() ? load_be64(theirs.data()) : kNever);
  }
  relay_->wait_in_stream_from(from);
}

std::string Proxied::register_windows() {
  for (std::uint32_t rail = 0; rail < rails_.size(); ++rail) {
    Communicator& carrier = *rails_[rail].carrier;
    for (const std::span<std::byte> windows : {relay_->windows_in(rail), relay_->windows_out(rail)}) {
      if (!carrier.register_buffer(windows.data(), windows.size()) ||
          !carrier.register_output(windows.data(), windows.size())) {
        return carrier.error()->line;
      }
    }
  }
  return {};
}

void Proxied::forget_windows() noexcept {
  for (std::uint32_t rail = 0; rail < rails_.size(); ++rail) {
    for (const std::span<std::byte> windows : {relay_->windows_in(rail), relay_->windows_out(rail)}) {
      rails_[rail].carrier->deregister_buffer(windows.data(), windows.size());
    }
  }
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

Carried Proxied::carried() const noexcept {
  Carried all;
  for (const Rail& rail : rails_) all += {rail.proxy->bytes_written(), rail.proxy->bytes_copied()};
  return all;
}

void Proxied::abort(int peer) noexcept {
  if (peer != group_.rank()) return relay_->fail(peer);  // an operation under way finds out by itself, and says more
  for (const Rail& rail : rails_) rail.proxy->abort("aborted by a request");
}

std::optional<CommError> Proxied::failure() const {
  for (const Rail& rail : rails_) {
    auto said = rail.proxy->failure();
    if (said && rails_.size() > 1) said->line = fmt::format("rail {}: {}", rail.device, said->line);
    if (said) return said;
  }
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

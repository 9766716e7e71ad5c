#include "softhca/hca_impl.hpp"

#include <sys/socket.h>

#include "base/clock.hpp"
#include "base/env.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/units.hpp"
#include "softhca/counters.hpp"
#include "softhca/devices.hpp"
#include "softhca/gpu/cuda_copy_engine.hpp"

namespace tensorwire::softhca {

namespace {

/// As often as the kernel's soft-RoCE asks.
constexpr std::uint32_t kPacketsPerAck = 64;

DeviceInfo with_address(DeviceInfo device, std::uint32_t ipv4) {
  device.has_ipv6 = device.has_ipv6 && device.ipv4 == ipv4;
  device.ipv4 = ipv4;
  return device;
}

/// What DCQCN lets go at once: one batch of packets, as long as one send takes them.
constexpr std::uint64_t kBurstBytes = 64 * 1024;
constexpr std::uint64_t kUsualLineRateMbps = 100'000;
constexpr std::uint64_t kMegabit = 1'000'000;

transport::DcqcnConfig dcqcn_config(const HcaOptions& options, const std::string& interface) {
  if (!options.dcqcn) return {};
  std::uint64_t mbps = options.line_rate_mbps;
  if (mbps == 0) mbps = read_port(interface).speed_mbps;
  if (mbps == 0) mbps = kUsualLineRateMbps;
  transport::DcqcnConfig config = *options.dcqcn == transport::DcqcnVariant::kPaper
                                      ? transport::dcqcn_paper(mbps * kMegabit)
                                      : transport::dcqcn_nic(mbps * kMegabit);
  config.burst_bytes = kBurstBytes;
  return config;
}

HostAddress host_address(const DeviceInfo& device, const AddressClaim& claim) {
  return {.ipv4 = claim.ipv4, .slot = claim.slot, .shared = claim.shared, .interface_index = device.interface_index};
}

transport::EngineConfig engine_config(const HcaOptions& options, const std::string& interface) {
  transport::EngineConfig config;
  config.seed = entropy64();
  config.ack_timeout_floor = options.ack_timeout_floor;
  // An acknowledgement costs both ends a system call, and a window that closes asks for one by itself.
  config.ack_request_every = kPacketsPerAck;
  config.ack_coalesce = kPacketsPerAck;
  config.dcqcn = dcqcn_config(options, interface);
  return config;
}

}  // namespace

HcaOptions HcaOptions::from_environment() {
  HcaOptions options;
  options.receive_buffer = env::get_bytes("TENSORWIRE_RCVBUF", options.receive_buffer);
  options.segment_offload = env::get_bool("TENSORWIRE_GSO", options.segment_offload);
  options.ack_timeout_floor = env::get_duration("TENSORWIRE_ACK_FLOOR", options.ack_timeout_floor);
  options.gid_layout = gid_layout_from_environment();
  const std::string dcqcn = env::get_choice("TENSORWIRE_DCQCN", "off", {"off", "paper", "nic"});
  if (dcqcn != "off") {
    options.dcqcn = dcqcn == "paper" ? transport::DcqcnVariant::kPaper : transport::DcqcnVariant::kNic;
  }
  constexpr std::int64_t kFastest = 1'000'000;  // 1 Tb/s
  options.line_rate_mbps = static_cast<std::uint64_t>(env::get_int("TENSORWIRE_LINE_RATE", 0, 1, kFastest));
  options.capture = Capture::from_environment();
  options.faults = FaultInjector::from_environment();
  if (env::get_choice("TENSORWIRE_LINK", "auto", {"auto", "packets"}) == "packets") {
    options.packets_only = "TENSORWIRE_LINK=packets";
  } else if (options.capture) {
    options.packets_only = "a capture is on";
  } else if (options.faults) {
    options.packets_only = "faults are on";
  }
  return options;
}

HcaImpl::HcaImpl(const DeviceInfo& device, AddressClaim claim, HcaOptions options)
    : device_(with_address(device, claim.ipv4)),
      rendezvous_(std::move(claim.rendezvous)),
      packets_only_(std::move(options.packets_only)),
      capture_(options.capture),
      gpus_(options.gpus ? options.gpus : make_cuda_platform()),
      staged_memory_(*gpus_, options.faults ? options.faults->config().gpu_write_late : 0),
      interface_(device_),
      gids_(options.gid_layout),
      shard_(host_address(device_, claim), engine_config(options, device_.interface), thread_),
      random_(entropy64()) {
  update_gids();
  const bool local = packets_only_.empty();
  shard_.attach(std::make_unique<UdpLink>(shard_, std::move(claim.udp),
                                          UdpLinkConfig{.receive_buffer = options.receive_buffer,
                                                        .segment_offload = options.segment_offload,
                                                        .capture = std::move(options.capture),
                                                        .faults = std::move(options.faults),
                                                        .neighbours = std::move(claim.neighbours)}),
                local ? std::make_unique<LocalLink>(shard_) : nullptr);
  thread_.start(shard_, shard_.udp().receive_fds(), thread_sides(), "tw-" + wire::ipv4_text(device_.ipv4));
  const std::string slot =
      shard_.address().shared ? " (process slot " + std::to_string(shard_.address().slot) + ")" : "";
  log_info(device_.name + ": " + wire::ipv4_text(device_.ipv4) + slot + " on " + device_.interface +
           ", receive buffer " + format_bytes(shard_.udp().receive_buffer_bytes()) + ", acknowledge timeout at least " +
           format_duration(options.ack_timeout_floor) +
           (local ? std::string{} : ", no same-host link: " + packets_only_));
}

HcaImpl::~HcaImpl() {
  thread_.stop();
  staged_memory_.settle_all();  // before the regions that copies are for
  if (capture_) capture_->flush();
}

PortInfo HcaImpl::port() const { return read_port(device_.interface); }

std::vector<GidEntry> HcaImpl::gid_table() const {
  const std::lock_guard guard{gids_mutex_};
  return gids_.entries();
}

void HcaImpl::update_gids() {
  const std::lock_guard guard{gids_mutex_};
  gids_.update(interface_.bindable());
}

std::vector<EngineThread::Side> HcaImpl::thread_sides() {
  std::vector<EngineThread::Side> sides{{.fd = rendezvous_.get(), .serve = [this] { accept_peers(); }}};
  if (const int fd = shard_.udp().neighbours_fd(); fd >= 0) {
    sides.push_back({.fd = fd, .serve = [this] { hear_neighbours(); }});
  }
  if (interface_.fd() >= 0) sides.push_back({.fd = interface_.fd(), .serve = [this] { tell_interface_events(); }});
  return sides;
}

void HcaImpl::accept_peers() noexcept {
  for (;;) {
    UniqueFd connection{::accept4(rendezvous_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
    if (!connection) return;
    shard_.locked([&] { shard_.adopt(std::move(connection)); });
  }
}

void HcaImpl::hear_neighbours() noexcept {
  shard_.locked([&] { shard_.udp().hear_neighbours(monotonic_now()); });
  shard_.progress(Shard::Depth::kTransmit);  // what they brought may want an answer
}

void HcaImpl::tell_interface_events() noexcept {
  try {
    const std::vector<HcaEvent> events = interface_.take_events();
    update_gids();  // before the event that says so
    for (const HcaEvent event : events) shard_.tell(event);
  } catch (const std::exception& error) {
    log_warn(device_.name + ": a change of " + device_.interface + " was not told: " + error.what());
  }
}

void HcaImpl::progress_inline(Shard::Depth depth) noexcept {
  if (dead_.load(std::memory_order_relaxed)) return;
  if (depth == Shard::Depth::kPoll && !thread_.standing_by()) depth = Shard::Depth::kFull;
  thread_.before_inline_pass();
  const Shard::Result result = shard_.progress(depth);
  thread_.after_inline_pass(result, depth != Shard::Depth::kTransmit);
}

void HcaImpl::expect_blocking() noexcept {
  if (!dead_.load(std::memory_order_relaxed)) thread_.serve_now();
}

void HcaImpl::before_fork() noexcept {
  if (capture_) capture_->flush();  // or the child would write the buffered part again
}

void HcaImpl::after_fork_in_child() noexcept {
  dead_.store(true);
  thread_.abandon();
  rendezvous_.reset();
  interface_.close();
  shard_.close_sockets();
}

std::vector<std::pair<std::string, std::uint64_t>> HcaImpl::counters() const {
  std::vector<std::pair<std::string, std::uint64_t>> all;
  if (dead_) return all;
  shard_.locked([&] {
    const auto sink = [&](const char* name, std::uint64_t value) { all.emplace_back(name, value); };
    visit_engine_counters(shard_.engine().counters(), sink);
    shard_.udp().visit_counters(sink);
    if (shard_.local() != nullptr) shard_.local()->visit_counters(sink);
    staged_memory_.visit_counters(sink);
  });
  return all;
}

}  // namespace tensorwire::softhca

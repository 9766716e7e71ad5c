#include "cli/bench/paths.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "cli/bench/tcp_link.hpp"
#include "cli/bench/tcp_mesh.hpp"
#include "cli/bench/udp_floor.hpp"
#include "collective/builders.hpp"
#include "collective/reduce.hpp"
#include "verbs/context.hpp"

namespace tensorwire::cli {

namespace {

class CommPath final : public BenchPath {
 public:
  CommPath(std::string name, bootstrap::Group& group, const PathShape& shape, const comm::CommOptions& options)
      : BenchPath(std::move(name)), shape_(shape), communicator_(comm::Communicator::create(group, options)) {}

  bool all_reduce(const std::byte* in, std::byte* out) override {
    if (communicator_->all_reduce(in, out, shape_.count, shape_.dtype)) return true;
    throw Error{"all-reduce over " + name(), communicator_->error()->line};
  }
  [[nodiscard]] std::optional<std::uint64_t> packets() const override {
    return communicator_->device_counter("port_xmit_packets");
  }
  [[nodiscard]] std::optional<std::uint64_t> retransmissions() const override {
    return communicator_->device_counter("retransmitted_packets");
  }
  [[nodiscard]] std::string description() const override { return communicator_->describe(); }
  [[nodiscard]] std::string algorithm() const override {
    return std::string{collective::name_of(communicator_->algorithm_for(shape_.count, shape_.dtype))};
  }

 private:
  PathShape shape_;
  std::unique_ptr<comm::Communicator> communicator_;
};

/// TCP takes the interface that RDMA takes: its IPv4 address in network order. With an IPv6 GID it is loopback's, and
/// all ranks must be on this host.
std::uint32_t tcp_address(const comm::CommOptions& options) {
  verbs::DeviceWish wish;
  wish.device = options.device;
  if (options.gid_index >= 0) wish.gid_index = options.gid_index;
  const auto context = verbs::Context::open(wish);
  std::uint32_t address = htonl(INADDR_LOOPBACK);
  if (context->gid().is_ipv4()) std::memcpy(&address, context->gid().bytes.data() + 12, sizeof address);
  return address;
}

/// The bytes of the plan that the communicator would take, and nothing else of it.
ExchangePattern pattern_for(const bootstrap::Group& group, const PathOptions& options) {
  const collective::Shape shape{static_cast<std::uint32_t>(group.world_size()), options.shape.count,
                                options.shape.dtype};
  const collective::Algorithm algorithm = collective::choose(shape, options.comm.thresholds);
  return exchange_pattern(collective::build_plan(shape, algorithm), static_cast<std::uint32_t>(group.rank()));
}

class UdpFloorPath final : public BenchPath {
 public:
  UdpFloorPath(bootstrap::Group& group, const PathOptions& options)
      : BenchPath("udp-floor"),
        bytes_(options.shape.bytes()),
        pattern_(pattern_for(group, options)),
        floor_(group.rank(), group.world_size(), Waiter{options.comm.wait}) {
    const std::uint16_t port = floor_.port();
    std::vector<std::uint16_t> ports;
    for (const auto& bytes : group.all_gather(std::as_bytes(std::span{&port, 1}))) {
      std::memcpy(&ports.emplace_back(), bytes.data(), sizeof port);
    }
    floor_.set_peer_ports(std::move(ports));
  }

  bool all_reduce(const std::byte* in, std::byte* out) override {
    return floor_.exchange(pattern_, {{in, bytes_}, {out, bytes_}});
  }
  [[nodiscard]] std::optional<std::uint64_t> packets() const override { return floor_.packets_sent(); }
  [[nodiscard]] std::string description() const override {
    return "bare UDP with GSO and GRO: same packets, no protocol, no reduction";
  }
  [[nodiscard]] bool reduces() const noexcept override { return false; }

 private:
  std::uint64_t bytes_;
  ExchangePattern pattern_;
  UdpFloor floor_;
};

/// The yardstick for the plan over TCP: what one would write by hand for this one size over bare sockets. The same
/// bytes, the same reduction, the same copies; no slots, signatures, credits or steps, and no promise to anybody.
class BareTcpPath final : public BenchPath {
 public:
  BareTcpPath(bootstrap::Group& group, const PathOptions& options)
      : BenchPath("tcp-bare"),
        shape_(options.shape),
        pattern_(pattern_for(group, options)),
        peers_(static_cast<std::size_t>(group.world_size() - 1)),
        received_(shape_.bytes() * std::max<std::size_t>(peers_, 1)),
        reduced_(shape_.bytes()),
        exchange_(group, tcp_address(options.comm), Waiter{options.comm.wait}) {}

  bool all_reduce(const std::byte* in, std::byte* out) override {
    if (pattern_.empty()) return true;
    const std::uint64_t chunk = std::min(*std::ranges::max_element(pattern_[0].receive_bytes), shape_.bytes());
    exchange_.exchange(pattern_[0], {{in, shape_.bytes()}, received_});
    std::vector<const std::byte*> operands{in};
    for (std::size_t peer = 0; peer < peers_; ++peer) operands.push_back(received_.data() + peer * chunk);
    const std::size_t elements = chunk / collective::element_bytes(shape_.dtype);
    const bool all_gather = pattern_.size() > 1;
    collective::reduce({shape_.dtype}, operands, out, all_gather ? reduced_.data() : nullptr, elements);
    if (!all_gather) return true;
    exchange_.exchange(pattern_[1], {reduced_, received_});
    std::memcpy(out + chunk, received_.data(), shape_.bytes() - chunk);
    return true;
  }
  [[nodiscard]] std::string description() const override { return "written by hand over bare sockets"; }
  [[nodiscard]] bool reduces() const noexcept override { return false; }

 private:
  PathShape shape_;
  ExchangePattern pattern_;
  std::size_t peers_;
  std::vector<std::byte> received_;
  std::vector<std::byte> reduced_;
  BareTcpExchange exchange_;
};

std::unique_ptr<BenchPath> make_comm_path(const std::string& name, bootstrap::Group& group,
                                          const PathOptions& options) {
  // All ranks make the same paths in the same order. Distinct numbers keep apart what they trace and count.
  static std::uint16_t made = 0;
  comm::CommOptions comm = options.comm;
  comm.communicator_number = made++;
  if (name == "local") comm.path = comm::PathChoice::kDevice;
  if (name == "mapped") comm.path = comm::PathChoice::kMapped;
  if (name == "roce") comm.path = comm::PathChoice::kPackets;
  if (name == "tcp") {
    comm.link_factory = [address = tcp_address(comm)](bootstrap::Group& g, const comm::LinkSetup& setup) {
      return std::make_unique<TcpLink>(g, setup, address);
    };
  }
  return std::make_unique<CommPath>(name, group, options.shape, comm);
}

}  // namespace

std::unique_ptr<BenchPath> make_path(const std::string& name, bootstrap::Group& group, const PathOptions& options) {
  const auto by_communicator = {"mapped", "local", "roce", "rdma", "tcp"};
  if (std::ranges::find(by_communicator, name) != by_communicator.end()) return make_comm_path(name, group, options);
  if (name == "udp-floor") return std::make_unique<UdpFloorPath>(group, options);
  if (name == "tcp-bare") return std::make_unique<BareTcpPath>(group, options);
  throw Error{"path '" + name + "'", "no such path", "Use mapped, local, roce, tcp, udp-floor or tcp-bare"};
}

std::vector<std::string> default_paths() { return {"local", "roce", "tcp", "udp-floor"}; }

}  // namespace tensorwire::cli

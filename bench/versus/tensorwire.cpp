// Tensorwire's communicator. Ranks are those of the launcher's variables. VERSUS_PATH: mapped (memory that
// ranks map of each other), local (the HCA's same-host link) or packets (RoCEv2 over UDP); another path is an error.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>

#include "base/error.hpp"
#include "bootstrap/group.hpp"
#include "comm/communicator.hpp"
#include "library.hpp"

namespace tensorwire::versus {

namespace {

class Tensorwire final : public Library {
 public:
  Tensorwire()
      : group_(bootstrap::Group::join(bootstrap::detect_options(bootstrap::process_environment()))),
        communicator_(comm::Communicator::create(*group_, options())) {
    const std::string path = asked_path();
    const std::string sign = path == "mapped"    ? "mapped memory"
                             : path == "packets" ? "RoCEv2 packets"
                                                 : "same-host link";
    const std::string found = communicator_->stats().peers.front().path;
    if (!found.starts_with(sign)) throw Error{"compare over " + sign, "the path is another one: " + found};
  }

  [[nodiscard]] std::uint32_t rank() const override { return static_cast<std::uint32_t>(group_->rank()); }
  [[nodiscard]] std::uint32_t ranks() const override { return static_cast<std::uint32_t>(group_->world_size()); }
  [[nodiscard]] std::string description() const override { return communicator_->describe(); }
  [[nodiscard]] std::string path(std::size_t count) const override {
    const auto algorithm = communicator_->algorithm_for(count, collective::DType::kFloat32);
    return std::string{name_of(algorithm)} + ", " + communicator_->stats().peers.front().path;
  }
  void prepare(const float* in, float* out, std::size_t count) override {
    if (!communicator_->register_buffer(in, count * sizeof(float)) ||
        !communicator_->register_output(out, count * sizeof(float))) {
      fail();
    }
  }
  void all_reduce(const float* in, float* out, std::size_t count) override {
    if (!communicator_->all_reduce(in, out, count, collective::DType::kFloat32)) fail();
  }
  void forget(const float* in, float* out, std::size_t count) override {
    communicator_->deregister_buffer(in, count * sizeof(float));
    communicator_->deregister_buffer(out, count * sizeof(float));
  }
  [[nodiscard]] std::vector<std::pair<std::string, std::uint64_t>> counters() const override {
    const comm::CommStats stats = communicator_->stats();
    std::uint64_t messages = 0;
    for (const auto& peer : stats.peers) messages += peer.traffic.messages_sent;
    std::vector<std::pair<std::string, std::uint64_t>> all{{"messages_sent", messages},
                                                           {"bytes_written", stats.runner.bytes_written},
                                                           {"bytes_copied", stats.runner.bytes_copied}};
    for (const char* name : {"port_xmit_packets", "port_rcv_packets", "retransmitted_packets", "local_tx_records",
                             "local_rx_inline_bytes", "local_rx_pulled_bytes", "local_wakeups"}) {
      if (const auto value = communicator_->device_counter(name)) all.emplace_back(name, *value);
    }
    return all;
  }

 private:
  static std::string asked_path() {
    const char* path = std::getenv("VERSUS_PATH");
    return path != nullptr ? path : "local";
  }
  static comm::CommOptions options() {
    comm::CommOptions options;
    options.slot_payload_bytes = 0;  // as the C API's default
    const std::string path = asked_path();
    options.path = path == "mapped"    ? comm::PathChoice::kMapped
                   : path == "packets" ? comm::PathChoice::kPackets
                                       : comm::PathChoice::kDevice;
    return options;
  }
  [[noreturn]] void fail() const { throw Error{"all-reduce", communicator_->error()->line}; }

  std::unique_ptr<bootstrap::Group> group_;
  std::unique_ptr<comm::Communicator> communicator_;
};

}  // namespace

}  // namespace tensorwire::versus

int main() try {
  tensorwire::versus::Tensorwire library;
  return tensorwire::versus::run_rank(library);
} catch (const std::exception& error) {
  std::fprintf(stderr, "tensorwire: %s\n", error.what());
  return 1;
}

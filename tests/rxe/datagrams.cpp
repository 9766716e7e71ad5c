// UD: the initiator sends a datagram and waits for its answer, which has the same length and other bytes; the immediate
// is the index. Where packets are dropped it asks again. A datagram arrives behind 40 bytes of global route header, of
// which RoCEv2 fills the last 20 with the IPv4 header.
#include <array>
#include <cstring>
#include <stdexcept>

#include "session.hpp"

namespace tensorwire::rxe {

namespace {

constexpr std::uint32_t kGrhBytes = 40;
constexpr std::uint32_t kIpv4Offset = 20;
constexpr std::uint32_t kReceives = 16;
constexpr std::uint32_t kReceiveBytes = kGrhBytes + 4096;
constexpr std::uint64_t kSent = 1ULL << 32;  ///< in wr_id
constexpr int kAnswerMs = 100;
constexpr int kCleanAnswerMs = 10'000;
constexpr int kAttempts = 50;
constexpr int kIdleMs = 30'000;
constexpr std::uint32_t kLastOne = 0xffff'ffff;  ///< the immediate that ends the session

class Datagrams {
 public:
  Datagrams(Station& station, Control& control, const Settings& settings)
      : station_(station),
        settings_(settings),
        content_(station.pd(), pattern(settings.seed), IBV_ACCESS_LOCAL_WRITE),
        arrivals_(station.pd(), std::vector<std::byte>(kReceives * kReceiveBytes), IBV_ACCESS_LOCAL_WRITE) {
    for (std::uint32_t i = 0; i < kReceives; ++i) post_receive(i);
    control.send(station.address());
    peer_ = control.receive<Address>();
    station.connect(peer_, settings.path_mtu, settings.ack_timeout);
    control.barrier();
  }

  Outcome ask() {
    Outcome outcome;
    for (std::uint32_t index = 0; index < settings_.count; ++index) {
      const Operation op = datagram(index);
      for (int attempt = 0;; ++attempt) {
        if (attempt == kAttempts) throw std::runtime_error{"no answer to datagram " + std::to_string(index)};
        if (attempt > 0) ++outcome.repeated;
        send(index, op.from, op.length);
        if (answered(index, op)) break;
        if (!settings_.loss) throw std::runtime_error{"datagram " + std::to_string(index) + " or its answer was lost"};
      }
      ++outcome.operations;
      outcome.bytes += op.length;
    }
    for (int copy = 0; copy < kAttempts; ++copy) send(kLastOne, 0, 0);  // one of them will arrive
    return outcome;
  }

  Outcome answer() {
    Outcome outcome;
    for (;;) {
      const ibv_wc wc = next_arrival(kIdleMs);
      if (wc.imm_data == kLastOne) return outcome;
      const Operation op = datagram(wc.imm_data);
      check(wc, op.from, op.length);
      post_receive(static_cast<std::uint32_t>(wc.wr_id));
      send(wc.imm_data, op.reply_from, op.length);
      ++outcome.operations;
      outcome.bytes += op.length;
    }
  }

 private:
  /// The plan's operation, cut to one packet.
  [[nodiscard]] Operation datagram(std::uint32_t index) const {
    Settings settings = settings_;
    settings.kinds = 1U << static_cast<unsigned>(Kind::kSendImm);
    Operation op = operation(settings, index);
    if (op.length > settings_.path_mtu) op.length %= settings_.path_mtu + 1;
    return op;
  }

  void post_receive(std::uint32_t slot) {
    station_.post_receive(slot, arrivals_.sge(std::uint64_t{slot} * kReceiveBytes, kReceiveBytes));
  }

  void send(std::uint32_t immediate, std::uint32_t from, std::uint32_t length) {
    ibv_sge sge = content_.sge(from, length);
    std::array<ibv_send_wr, 1> wr{};
    wr[0].wr_id = kSent;
    wr[0].opcode = IBV_WR_SEND_WITH_IMM;
    wr[0].imm_data = immediate;
    wr[0].send_flags = IBV_SEND_SIGNALED;
    wr[0].sg_list = length > 0 ? &sge : nullptr;
    wr[0].num_sge = length > 0 ? 1 : 0;
    wr[0].wr.ud = {.ah = station_.address_handle(), .remote_qpn = peer_.qpn, .remote_qkey = Station::kQkey};
    station_.post_send(wr);
    for (;;) {  // its own completion, before anything else is waited for
      const std::optional<ibv_wc> wc = station_.next_completion(kIdleMs);
      if (!wc) throw std::runtime_error{"the send of a datagram did not complete"};
      if (wc->status != IBV_WC_SUCCESS) {
        throw std::runtime_error{std::string{"a datagram failed: "} + ibv_wc_status_str(wc->status)};
      }
      if (wc->wr_id == kSent) return;
      early_.push_back(*wc);
    }
  }

  [[nodiscard]] std::optional<ibv_wc> arrival(int bound_ms) {
    if (!early_.empty()) {
      const ibv_wc wc = early_.front();
      early_.erase(early_.begin());
      return wc;
    }
    const std::optional<ibv_wc> wc = station_.next_completion(bound_ms);
    if (wc && wc->status != IBV_WC_SUCCESS) {
      throw std::runtime_error{std::string{"a datagram's receive failed: "} + ibv_wc_status_str(wc->status)};
    }
    return wc;
  }

  ibv_wc next_arrival(int bound_ms) {
    const std::optional<ibv_wc> wc = arrival(bound_ms);
    if (!wc) throw std::runtime_error{"no datagram arrived for " + std::to_string(bound_ms / 1000) + " s"};
    return *wc;
  }

  bool answered(std::uint32_t index, const Operation& op) {
    while (const std::optional<ibv_wc> wc = arrival(settings_.loss ? kAnswerMs : kCleanAnswerMs)) {
      const bool wanted = wc->imm_data == index;  // else the second answer to an earlier one
      if (wanted) check(*wc, op.reply_from, op.length);
      post_receive(static_cast<std::uint32_t>(wc->wr_id));
      if (wanted) return true;
    }
    return false;
  }

  void check(const ibv_wc& wc, std::uint32_t from, std::uint32_t length) {
    const std::string what = "datagram " + std::to_string(wc.imm_data);
    if (wc.opcode != IBV_WC_RECV || wc.src_qp != peer_.qpn) throw std::runtime_error{what + " has a wrong sender"};
    constexpr unsigned kFlags = IBV_WC_WITH_IMM | IBV_WC_GRH;
    if ((wc.wc_flags & kFlags) != kFlags) throw std::runtime_error{what + " came without GRH or immediate"};
    if (wc.byte_len != kGrhBytes + length) throw std::runtime_error{what + " has a wrong length"};
    const auto bytes = arrivals_.bytes().subspan(wc.wr_id * kReceiveBytes, kReceiveBytes);
    if (bytes[kIpv4Offset] != std::byte{0x45} ||
        std::memcmp(&bytes[kIpv4Offset + 12], &peer_.gid.raw[12], sizeof(std::uint32_t)) != 0) {
      throw std::runtime_error{what + " has no IPv4 header of its sender in its route header"};
    }
    expect_equal(bytes.subspan(kGrhBytes, length), content_.bytes().subspan(from, length), what);
  }

  Station& station_;
  const Settings& settings_;
  Memory content_, arrivals_;
  Address peer_;
  std::vector<ibv_wc> early_;
};

}  // namespace

Outcome run_datagrams(Station& station, Control& control, const Settings& settings, Role role) {
  Datagrams datagrams{station, control, settings};
  const Outcome outcome = role == Role::kInitiator ? datagrams.ask() : datagrams.answer();
  control.barrier();
  return outcome;
}

}  // namespace tensorwire::rxe

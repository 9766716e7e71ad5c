// UD and UC: the initiator sends a message and waits for its answer, which has the same length and other bytes; the
// immediate is the index. Where packets are dropped it asks again: whole messages arrive, or nothing. A datagram
// arrives behind 40 bytes of global route header, of which RoCEv2 fills the last 20 with the IPv4 header; of UC half of
// the messages are SENDs and half are WRITEs.
#include <array>
#include <cstring>
#include <stdexcept>

#include "session.hpp"

namespace tensorwire::rxe {

namespace {

constexpr std::uint32_t kGrhBytes = 40;
constexpr std::uint32_t kIpv4Offset = 20;
constexpr std::uint32_t kReceives = 16;
constexpr std::uint32_t kLongest = 1U << 16;  ///< of UC; a datagram is one packet
constexpr std::uint32_t kReceiveBytes = kGrhBytes + kLongest;
constexpr std::uint64_t kSent = 1ULL << 32;  ///< in wr_id
constexpr int kAnswerMs = 100;
constexpr int kCleanAnswerMs = 10'000;
constexpr int kAttempts = 50;
constexpr int kIdleMs = 30'000;
constexpr std::uint32_t kLastOne = 0xffff'ffff;  ///< the immediate that ends the session

class Answered {
 public:
  Answered(Station& station, Control& control, const Settings& settings)
      : station_(station),
        settings_(settings),
        datagrams_(settings.scenario == Scenario::kDatagrams),
        header_bytes_(datagrams_ ? kGrhBytes : 0),
        content_(station.pd(), pattern(settings.seed), IBV_ACCESS_LOCAL_WRITE),
        arrivals_(station.pd(), std::vector<std::byte>(kReceives * kReceiveBytes), IBV_ACCESS_LOCAL_WRITE),
        written_(station.pd(), std::vector<std::byte>(kLongest), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) {
    for (std::uint32_t i = 0; i < kReceives; ++i) post_receive(i);
    Address mine = station.address();
    mine.slots = {.address = written_.address(), .length = kLongest, .key = written_.key()};
    control.send(mine);
    peer_ = control.receive<Address>();
    station.connect(peer_, settings.path_mtu, settings.ack_timeout);
    control.barrier();
  }

  Outcome ask() {
    Outcome outcome;
    for (std::uint32_t index = 0; index < settings_.count; ++index) {
      const Operation op = message(index);
      for (int attempt = 0;; ++attempt) {
        if (attempt == kAttempts) throw std::runtime_error{"no answer to message " + std::to_string(index)};
        if (attempt > 0) ++outcome.repeated;
        send(index, op, op.from);
        if (answered(index, op)) break;
        if (!settings_.loss) throw std::runtime_error{"message " + std::to_string(index) + " or its answer was lost"};
      }
      ++outcome.operations;
      outcome.bytes += op.length;
    }
    for (int copy = 0; copy < kAttempts; ++copy) send(kLastOne, {}, 0);  // one of them will arrive
    return outcome;
  }

  Outcome answer() {
    Outcome outcome;
    for (;;) {
      const ibv_wc wc = next_arrival(kIdleMs);
      if (wc.imm_data == kLastOne) return outcome;
      const Operation op = message(wc.imm_data);
      check(wc, op, op.from);
      post_receive(static_cast<std::uint32_t>(wc.wr_id));
      send(wc.imm_data, op, op.reply_from);
      ++outcome.operations;
      outcome.bytes += op.length;
    }
  }

 private:
  /// The plan's operation, cut to what this service carries.
  [[nodiscard]] Operation message(std::uint32_t index) const {
    Settings settings = settings_;
    settings.kinds = 1U << static_cast<unsigned>(Kind::kSendImm);
    if (!datagrams_) settings.kinds |= 1U << static_cast<unsigned>(Kind::kWriteImm);
    Operation op = operation(settings, index);
    const std::uint32_t longest = datagrams_ ? settings_.path_mtu : kLongest;
    if (op.length > longest) op.length %= longest + 1;
    return op;
  }

  void post_receive(std::uint32_t slot) {
    station_.post_receive(slot, arrivals_.sge(std::uint64_t{slot} * kReceiveBytes, kReceiveBytes));
  }

  void send(std::uint32_t immediate, const Operation& op, std::uint32_t from) {
    ibv_sge sge = content_.sge(from, op.length);
    std::array<ibv_send_wr, 1> wr{};
    wr[0].wr_id = kSent;
    wr[0].opcode = op.kind == Kind::kWriteImm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND_WITH_IMM;
    wr[0].imm_data = immediate;
    wr[0].send_flags = IBV_SEND_SIGNALED;
    wr[0].sg_list = op.length > 0 ? &sge : nullptr;
    wr[0].num_sge = op.length > 0 ? 1 : 0;
    if (datagrams_) {
      wr[0].wr.ud = {.ah = station_.address_handle(), .remote_qpn = peer_.qpn, .remote_qkey = Station::kQkey};
    } else {
      wr[0].wr.rdma = {.remote_addr = peer_.slots.address, .rkey = peer_.slots.key};
    }
    station_.post_send(wr);
    for (;;) {  // its own completion, before anything else is waited for
      const std::optional<ibv_wc> wc = station_.next_completion(kIdleMs);
      if (!wc) throw std::runtime_error{"the send of a message did not complete"};
      if (wc->status != IBV_WC_SUCCESS) {
        throw std::runtime_error{std::string{"a message failed: "} + ibv_wc_status_str(wc->status)};
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
      throw std::runtime_error{std::string{"a receive failed: "} + ibv_wc_status_str(wc->status)};
    }
    return wc;
  }

  ibv_wc next_arrival(int bound_ms) {
    const std::optional<ibv_wc> wc = arrival(bound_ms);
    if (!wc) throw std::runtime_error{"no message arrived for " + std::to_string(bound_ms / 1000) + " s"};
    return *wc;
  }

  bool answered(std::uint32_t index, const Operation& op) {
    while (const std::optional<ibv_wc> wc = arrival(settings_.loss ? kAnswerMs : kCleanAnswerMs)) {
      const bool wanted = wc->imm_data == index;  // else the second answer to an earlier one
      if (wanted) check(*wc, op, op.reply_from);
      post_receive(static_cast<std::uint32_t>(wc->wr_id));
      if (wanted) return true;
    }
    return false;
  }

  void check(const ibv_wc& wc, const Operation& op, std::uint32_t from) {
    const std::string what = "message " + std::to_string(wc.imm_data);
    const bool written = op.kind == Kind::kWriteImm;
    if (wc.opcode != (written ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV))
      throw std::runtime_error{what + " is of another kind"};
    if (datagrams_ && wc.src_qp != peer_.qpn) throw std::runtime_error{what + " has a wrong sender"};
    const unsigned flags = IBV_WC_WITH_IMM | (datagrams_ ? IBV_WC_GRH : 0);
    if ((wc.wc_flags & flags) != flags) throw std::runtime_error{what + " came without GRH or immediate"};
    if (wc.byte_len != header_bytes_ + op.length) throw std::runtime_error{what + " has a wrong length"};
    const auto bytes = arrivals_.bytes().subspan(wc.wr_id * kReceiveBytes, kReceiveBytes);
    if (datagrams_ && (bytes[kIpv4Offset] != std::byte{0x45} ||
                       std::memcmp(&bytes[kIpv4Offset + 12], &peer_.gid.raw[12], sizeof(std::uint32_t)) != 0)) {
      throw std::runtime_error{what + " has no IPv4 header of its sender in its route header"};
    }
    const auto arrived = written ? written_.bytes().first(op.length) : bytes.subspan(header_bytes_, op.length);
    expect_equal(arrived, content_.bytes().subspan(from, op.length), what);
  }

  Station& station_;
  const Settings& settings_;
  const bool datagrams_;
  const std::uint32_t header_bytes_;  ///< in front of an arrival's payload
  Memory content_, arrivals_, written_;
  Address peer_;
  std::vector<ibv_wc> early_;
};

}  // namespace

Outcome run_answered(Station& station, Control& control, const Settings& settings, Role role) {
  Answered messages{station, control, settings};
  const Outcome outcome = role == Role::kInitiator ? messages.ask() : messages.answer();
  control.barrier();
  return outcome;
}

}  // namespace tensorwire::rxe

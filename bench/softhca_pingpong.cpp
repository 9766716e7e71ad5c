// Latency of the soft HCA between two processes, beside kernel TCP and bare UDP in the same run. Medians of: half a
// ping-pong of 8 bytes, by WRITE WITH IMMEDIATE and by SEND; a write of 256 KiB that is answered with 8 bytes; and the
// exchange at the heart of a two-rank all-reduce of 256 KiB (two steps, in each both sides send 128 KiB and wait for
// the other's). Ways alternate within each round, so that a disturbance meets all of them.
//
// What RoCEv2 in software cannot go below is udp-crc: datagrams of the same sizes out of a buffer that is ready to be
// sent, and the CRC of all bytes at both ends. The two ways in which a payload can get between its headers are udp-copy
// (copied there, and the packets of a send are contiguous; what the HCA does) and udp-gather (the kernel gathers three
// pieces a packet).
//
//   softhca_pingpong [rounds [way]]      way: tcp, udp-floor, udp-crc, udp-copy, udp-gather, roce or local; else all
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "socket_ways.hpp"
#include "softhca/hca.hpp"

namespace tensorwire {
namespace {

using namespace bench;
using namespace softhca;

constexpr std::uint32_t kSmall = 8;
constexpr std::uint32_t kChunk = 128 * 1024;
constexpr int kSteps = 2;
constexpr int kIterations = 100;

/// Out-of-band words between the two processes.
struct Board {
  std::atomic<std::uint32_t> at[2];
  struct Peer {
    std::uint32_t ipv4, qpn, rkey;
    std::uint64_t buffer;
  } peer[2][2];
  std::uint64_t discards[2];
  std::uint64_t retransmissions[2];
};

struct Side {
  Board* board;
  int rank;
  std::uint32_t reached = 0;

  void barrier() {
    board->at[rank].store(++reached);
    const Ps end = monotonic_now() + kBound;
    while (board->at[1 - rank].load() < reached) {
      sched_yield();
      if (monotonic_now() > end) too_late("the other process at a barrier");
    }
  }
};

class HcaWay final : public Way {
 public:
  HcaWay(Side& side, int which, const std::shared_ptr<Hca>& hca, LinkChoice link) : hca_(hca), memory_(2 * kMessage) {
    pd_ = hca_->create_pd();
    const auto at = reinterpret_cast<std::uint64_t>(memory_.data());
    if (hca_->register_memory(pd_, at, memory_.size(), at, transport::kAccessLocalWrite | transport::kAccessRemoteWrite,
                              key_) != 0) {
      throw std::runtime_error("register_memory");
    }
    cq_ = hca_->create_cq(256, {});
    transport::QpInit init;
    init.pd = pd_;
    init.caps = {.max_send_wr = 64, .max_recv_wr = 128, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64};
    qp_ = hca_->create_qp(init, *cq_, *cq_, nullptr);
    hca_->set_link(qp_, link);
    side.board->peer[side.rank][which] = {hca_->device().ipv4, hca_->qpn(qp_), key_, at};
    side.barrier();
    peer_ = side.board->peer[1 - side.rank][which];
    connect();
    for (int i = 0; i < 64; ++i) post_receive();
    side.barrier();
  }
  ~HcaWay() override {
    hca_->destroy_qp(qp_);
    cq_.reset();
    hca_->deregister_memory(key_);
    hca_->destroy_pd(pd_);
  }

  void send(std::uint32_t bytes) override { post(transport::WrOpcode::kWriteImm, bytes); }
  void send_to_receive(std::uint32_t bytes) override { post(transport::WrOpcode::kSend, bytes); }
  void wait_for(std::uint32_t /*bytes*/) override {
    using transport::WcOpcode;
    std::array<transport::Completion, 8> done;
    const Ps end = monotonic_now() + kBound;
    unsigned idle = 0;  // the clock costs as much as a poll
    while (arrived_ == 0) {
      const std::size_t count = cq_->poll(done);
      for (std::size_t i = 0; i < count; ++i) {
        if (done[i].status != transport::WcStatus::kSuccess) throw std::runtime_error("work completion failed");
        if (done[i].opcode == WcOpcode::kRecvWithImm || done[i].opcode == WcOpcode::kRecv) ++arrived_;
      }
      if (count == 0 && ++idle % 256 == 0 && monotonic_now() > end) too_late("a message");
    }
    --arrived_;
    post_receive();
  }

  [[nodiscard]] std::string description() const { return hca_->link_description(qp_); }

 private:
  void post(transport::WrOpcode opcode, std::uint32_t bytes) {
    const transport::Sge sge{reinterpret_cast<std::uint64_t>(memory_.data()), bytes, key_};
    transport::SendWr wr;
    wr.opcode = opcode;
    wr.signaled = ++sent_ % 16 == 0;
    wr.inline_data = bytes <= 64;
    wr.remote_address = peer_.buffer + kMessage;
    wr.rkey = peer_.rkey;
    wr.sges = {&sge, 1};
    if (hca_->post_send(qp_, wr, false) != 0) throw std::runtime_error("post_send");
  }
  void post_receive() {
    const transport::Sge sge{reinterpret_cast<std::uint64_t>(memory_.data() + kMessage), kSmall, key_};
    if (hca_->post_recv(qp_, {.wr_id = 0, .sges = {&sge, 1}}) != 0) throw std::runtime_error("post_recv");
  }
  void modify(const transport::QpAttr& attr, std::uint32_t mask) {
    if (const int error = hca_->modify_qp(qp_, attr, mask); error != 0) {
      throw std::runtime_error("modify_qp " + std::to_string(error));
    }
  }
  void connect() {
    using namespace transport;
    QpAttr attr;
    attr.state = QpState::kInit;
    attr.access_flags = kAccessRemoteWrite;
    modify(attr, kAttrState | kAttrPkeyIndex | kAttrPort | kAttrAccessFlags);
    attr.state = QpState::kRtr;
    attr.has_grh = true;
    attr.av.remote = wire::Gid::from_ipv4(peer_.ipv4);
    attr.av.sgid_index = 1;
    attr.av.traffic_class = 104;
    attr.path_mtu = MtuCode::k4096;
    attr.dest_qpn = peer_.qpn;
    attr.min_rnr_timer = 12;
    modify(attr,
           kAttrState | kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn | kAttrMaxDestRdAtomic | kAttrMinRnrTimer);
    attr.state = QpState::kRts;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    modify(attr, kAttrState | kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrSqPsn | kAttrMaxQpRdAtomic);
  }

  std::shared_ptr<Hca> hca_;
  std::vector<std::byte> memory_;
  transport::PdId pd_ = 0;
  std::uint32_t key_ = 0;
  std::unique_ptr<Cq> cq_;
  Qp* qp_ = nullptr;
  Board::Peer peer_{};
  std::uint32_t sent_ = 0;
  int arrived_ = 0;
};

Ps median(std::vector<Ps>& times) {
  if (times.empty()) return 0;
  std::ranges::sort(times);
  return times[times.size() / 2];
}

/// What is measured of each way, and how one iteration of it goes on one side.
struct Measure {
  const char* title;
  void (*once)(Way& way, bool first);
  int divided_by;  ///< a ping-pong is two messages
};

constexpr std::array<Measure, 4> kMeasures{{
    {"8 B write",
     [](Way& way, bool first) {
       if (first) way.send(kSmall);
       way.wait_for(kSmall);
       if (!first) way.send(kSmall);
     },
     2},
    {"8 B send",
     [](Way& way, bool first) {
       if (first) way.send_to_receive(kSmall);
       way.wait_for(kSmall);
       if (!first) way.send_to_receive(kSmall);
     },
     2},
    {"256 KiB write",
     [](Way& way, bool first) {
       if (first) way.send(kMessage);
       way.wait_for(first ? kSmall : kMessage);
       if (!first) way.send(kSmall);
     },
     1},
    {"2x128 KiB both",
     [](Way& way, bool) {
       for (int step = 0; step < kSteps; ++step) way.exchange(kChunk);
     },
     1},
}};

struct Row {
  const char* name;
  Way* way;
  std::array<std::vector<Ps>, kMeasures.size()> times{};
};

void print_table(std::span<Row> rows) {
  fmt::print("{:<10}", "us, x tcp");
  for (const Measure& measure : kMeasures) fmt::print(" {:>22}", measure.title);
  fmt::print("\n");
  std::array<double, kMeasures.size()> tcp{};
  for (Row& row : rows) {
    fmt::print("{:<10}", row.name);
    for (std::size_t m = 0; m < kMeasures.size(); ++m) {
      const double time = static_cast<double>(median(row.times[m])) / kMicrosecond;
      if (&row == rows.data()) tcp[m] = time;
      fmt::print(" {:>14.2f} {:>7.2f}", time, time / tcp[m]);
    }
    fmt::print("\n");
  }
}

void run_side(Side side, const Sockets& sockets, int rounds, std::string_view only) {
  std::shared_ptr<Hca> hca = Hca::open(list_devices().front());
  auto local = std::make_unique<HcaWay>(side, 0, hca, LinkChoice::kAuto);
  auto packets = std::make_unique<HcaWay>(side, 1, hca, LinkChoice::kPackets);
  TcpWay tcp{sockets.tcp[side.rank]};
  std::vector<UdpWay> udp;
  for (std::size_t i = 0; i < kWorks.size(); ++i)
    udp.emplace_back(sockets.udp[i][side.rank], sockets.udp_port[i][1 - side.rank], kWorks[i]);

  std::array<Row, 7> rows{{{"tcp", &tcp},
                           {"udp-floor", &udp[0]},
                           {"udp-crc", &udp[1]},
                           {"udp-copy", &udp[2]},
                           {"udp-gather", &udp[3]},
                           {"roce", packets.get()},
                           {"local", local.get()}}};
  for (int round = 0; round < rounds; ++round) {
    for (Row& row : rows) {
      if (!only.empty() && only != row.name) continue;
      for (std::size_t m = 0; m < kMeasures.size(); ++m) {
        side.barrier();
        for (int i = 0; i < kIterations; ++i) {
          const Ps begin = monotonic_now();
          kMeasures[m].once(*row.way, side.rank == 0);
          row.times[m].push_back((monotonic_now() - begin) / kMeasures[m].divided_by);
        }
      }
    }
  }
  side.barrier();
  for (const auto& [name, value] : hca->counters()) {
    if (name == "rx_discards") side.board->discards[side.rank] = value;
    if (name == "retransmitted_packets") side.board->retransmissions[side.rank] = value;
    if (side.rank == 0 && std::getenv("COUNTERS") != nullptr && value != 0) fmt::print("  {} {}\n", name, value);
  }
  side.barrier();
  if (side.rank == 0) {
    print_table(rows);
    fmt::print("local: {}; packets: {}; dropped {} + {}, sent again {} + {}\n", local->description(),
               packets->description(), side.board->discards[0], side.board->discards[1], side.board->retransmissions[0],
               side.board->retransmissions[1]);
  }
  side.barrier();
}

}  // namespace
}  // namespace tensorwire

int main(int argc, char** argv) {
  using namespace tensorwire;
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 20;
  const Sockets sockets = open_sockets();
  void* const shared = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* const board = new (shared) Board{};
  const pid_t child = fork();
  try {
    run_side({.board = board, .rank = child == 0 ? 1 : 0}, sockets, rounds, argc > 2 ? argv[2] : "");
  } catch (const std::exception& error) {
    fmt::print(stderr, "softhca_pingpong: {}\n", error.what());
    return 1;
  }
  if (child == 0) return 0;
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

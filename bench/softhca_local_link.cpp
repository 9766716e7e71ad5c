// What the same-host link costs beside the least that two processes can do: half the round trip of a message of 8 bytes
// and of 128 KiB, as a flag in shared memory with the bytes beside it (8 bytes: in the same cache line; 128 KiB: copied
// in by the sender, copied out by the receiver), as a flag and a pull of the bytes (process_vm_readv), as a record in
// the ring alone, and as a WRITE WITH IMMEDIATE through two whole HCAs. Ways alternate within each round, so that a
// disturbance meets all of them; medians over rounds. Two idle cores are needed for numbers that mean anything.
//
//   softhca_local_link [rounds]
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "softhca/hca.hpp"
#include "softhca/local_record.hpp"

namespace tensorwire {
namespace {

using namespace softhca;

constexpr std::uint32_t kSmall = 8;
constexpr std::uint32_t kLarge = 128 * 1024;
constexpr int kIterations = 200;
constexpr Ps kBound = 10 * kSecond;

/// What both processes see: their meeting point, and the memory of the ways that need some.
struct Board {
  struct alignas(64) Line {
    std::atomic<std::uint64_t> flag{0};
    std::array<std::byte, 56> bytes;
  };
  struct Peer {
    std::uint32_t ipv4, qpn, rkey;
    std::uint64_t buffer, pull_source;
    std::uint32_t pid;
  };
  std::array<Line, 2> arrived;  ///< barrier
  std::array<Line, 2> message;  ///< of rank i
  std::array<Peer, 2> peer;
  alignas(64) std::array<std::array<std::byte, kLarge>, 2> shared;
};

/// Waits for `condition`, for a while without giving up the core.
template <class Condition>
void await(Condition condition, const char* what) {
  for (int spin = 0; spin < 20'000; ++spin) {
    if (condition()) return;
  }
  const Ps end = monotonic_now() + kBound;
  while (!condition()) {
    sched_yield();
    if (monotonic_now() > end) throw std::runtime_error(std::string{"nothing came: "} + what);
  }
}

/// One process of the two, and the ways in which it sends and receives. Each pair of calls is one message.
class Side {
 public:
  Side(Board& board, const RingMemory& to_us, const RingMemory& to_peer, int rank)
      : board_(board), rank_(rank), memory_(2 * kLarge), incoming_(to_us), outgoing_(to_peer) {}

  void open_hca();

  void barrier() {
    board_.arrived[rank_].flag.store(++barriers_);
    await([&] { return board_.arrived[1 - rank_].flag.load() >= barriers_; }, "the other process at a barrier");
  }

  void send_flag(std::uint32_t bytes) {
    if (bytes == kSmall) {
      std::memcpy(ours().bytes.data(), memory_.data(), kSmall);
    } else {
      std::memcpy(board_.shared[rank_].data(), memory_.data(), bytes);
    }
    raise_flag();
  }
  void receive_flag(std::uint32_t bytes) {
    await_flag();
    const std::byte* const from = bytes == kSmall ? theirs().bytes.data() : board_.shared[1 - rank_].data();
    std::memcpy(memory_.data() + kLarge, from, bytes);
  }

  void send_pull(std::uint32_t) { raise_flag(); }
  void receive_pull(std::uint32_t bytes) {
    await_flag();
    const Board::Peer& peer = board_.peer[1 - rank_];
    const iovec local{memory_.data() + kLarge, bytes};
    const iovec remote{reinterpret_cast<void*>(peer.pull_source), bytes};
    const ssize_t n = ::process_vm_readv(static_cast<pid_t>(peer.pid), &local, 1, &remote, 1, 0);
    if (n != static_cast<ssize_t>(bytes)) throw system_error("process_vm_readv", errno);
  }

  void send_ring(std::uint32_t bytes) {
    await([&] { return outgoing_.has_room(1); }, "room in the ring");
    wire::Headers headers;
    headers.opcode = wire::Opcode::kRcWriteOnlyImm;
    std::memcpy(encode_inline(headers, bytes, outgoing_.next_slot()).data(), memory_.data(), bytes);
    outgoing_.publish();
  }
  void receive_ring(std::uint32_t) {
    await([&] { return !incoming_.empty(); }, "a record");
    LocalRecord record;
    if (!decode(incoming_.front(), record)) throw std::runtime_error("a record that is none");
    std::memcpy(memory_.data() + kLarge, record.bytes.data(), record.bytes.size());
    incoming_.pop();
    std::ignore = incoming_.give_back();
  }

  void send_hca(std::uint32_t bytes);
  void receive_hca(std::uint32_t bytes);

  /// A thread that is woken while the application polls anyway costs more than the message.
  void print_wakeups() const {
    std::uint64_t records = 0;
    std::uint64_t wakeups = 0;
    for (const auto& [name, value] : hca_->counters()) {
      if (name == "local_tx_records") records = value;
      if (name == "local_wakeups") wakeups = value;
    }
    fmt::print("system calls to wake the peer: {:.3f} for each record sent\n",
               static_cast<double>(wakeups) / static_cast<double>(std::max<std::uint64_t>(1, records)));
  }

 private:
  [[nodiscard]] Board::Line& ours() { return board_.message[rank_]; }
  [[nodiscard]] Board::Line& theirs() { return board_.message[1 - rank_]; }
  void raise_flag() { ours().flag.store(++sent_, std::memory_order_release); }
  void await_flag() {
    ++received_;
    await([&] { return theirs().flag.load(std::memory_order_acquire) >= received_; }, "a flag");
  }
  void check(int error, const char* what) {
    if (error != 0) throw system_error(what, error);
  }

  Board& board_;
  int rank_;
  std::vector<std::byte> memory_;  ///< first half is sent, second half is received
  RingConsumer incoming_;
  RingProducer outgoing_;
  std::uint64_t barriers_ = 0, sent_ = 0, received_ = 0;
  std::shared_ptr<Hca> hca_;
  std::unique_ptr<Cq> send_cq_, receive_cq_;
  Qp* qp_ = nullptr;
  std::uint32_t key_ = 0;
};

void Side::open_hca() {
  using namespace transport;
  hca_ = Hca::open(list_devices().front());
  const PdId pd = hca_->create_pd();
  const auto at = reinterpret_cast<std::uint64_t>(memory_.data());
  check(hca_->register_memory(pd, at, memory_.size(), at, kAccessLocalWrite | kAccessRemoteWrite, key_), "register");
  send_cq_ = hca_->create_cq(256, {});
  receive_cq_ = hca_->create_cq(256, {});
  QpInit init;
  init.pd = pd;
  init.caps = {.max_send_wr = 128, .max_recv_wr = 128, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64};
  qp_ = hca_->create_qp(init, *send_cq_, *receive_cq_, nullptr);
  board_.peer[rank_] = {hca_->device().ipv4, hca_->qpn(qp_), key_, at, at, static_cast<std::uint32_t>(::getpid())};
  barrier();

  const Board::Peer& peer = board_.peer[1 - rank_];
  QpAttr attr;
  attr.state = QpState::kInit;
  attr.access_flags = kAccessRemoteWrite;
  check(hca_->modify_qp(qp_, attr, kAttrState | kAttrPkeyIndex | kAttrPort | kAttrAccessFlags), "INIT");
  attr.state = QpState::kRtr;
  attr.has_grh = true;
  attr.av.remote = wire::Gid::from_ipv4(peer.ipv4);
  attr.av.sgid_index = 1;
  attr.path_mtu = MtuCode::k4096;
  attr.dest_qpn = peer.qpn;
  attr.min_rnr_timer = 1;
  check(hca_->modify_qp(
            qp_, attr,
            kAttrState | kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn | kAttrMaxDestRdAtomic | kAttrMinRnrTimer),
        "RTR");
  attr.state = QpState::kRts;
  attr.timeout = 18;
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;
  check(hca_->modify_qp(qp_, attr,
                        kAttrState | kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrSqPsn | kAttrMaxQpRdAtomic),
        "RTS");
  if (hca_->link_description(qp_) != "same-host link") throw std::runtime_error(hca_->link_description(qp_));
  for (int i = 0; i < 100; ++i) check(hca_->post_recv(qp_, {}), "post_recv");
  barrier();
}

void Side::send_hca(std::uint32_t bytes) {
  std::array<transport::Completion, 16> done;
  std::ignore = send_cq_->poll(done);
  const Board::Peer& peer = board_.peer[1 - rank_];
  const transport::Sge sge{reinterpret_cast<std::uint64_t>(memory_.data()), bytes, key_};
  transport::SendWr wr;
  wr.opcode = transport::WrOpcode::kWriteImm;
  wr.inline_data = bytes <= 64;
  wr.remote_address = peer.buffer + kLarge;
  wr.rkey = peer.rkey;
  wr.sges = {&sge, 1};
  check(hca_->post_send(qp_, wr, false), "post_send");
}

void Side::receive_hca(std::uint32_t) {
  std::array<transport::Completion, 1> one;
  await([&] { return receive_cq_->poll(one) == 1; }, "a completion");
  if (one[0].status != transport::WcStatus::kSuccess) throw std::runtime_error("a completion with an error");
  check(hca_->post_recv(qp_, {}), "post_recv");
}

struct Way {
  std::string name;
  std::uint32_t bytes;
  void (Side::*send)(std::uint32_t);
  void (Side::*receive)(std::uint32_t);
};
const std::vector<Way> kWays = {
    {"8 B      shared-memory flag", kSmall, &Side::send_flag, &Side::receive_flag},
    {"8 B      ring record", kSmall, &Side::send_ring, &Side::receive_ring},
    {"8 B      same-host link", kSmall, &Side::send_hca, &Side::receive_hca},
    {"128 KiB  copy in, flag, copy out", kLarge, &Side::send_flag, &Side::receive_flag},
    {"128 KiB  flag, pull", kLarge, &Side::send_pull, &Side::receive_pull},
    {"128 KiB  same-host link", kLarge, &Side::send_hca, &Side::receive_hca},
};

/// Half the round trip, averaged over a round.
Ps ping_pong(Side& side, int rank, const Way& way) {
  side.barrier();
  const Ps begin = monotonic_now();
  for (int i = 0; i < kIterations; ++i) {
    if (rank == 0) (side.*way.send)(way.bytes);
    (side.*way.receive)(way.bytes);
    if (rank == 1) (side.*way.send)(way.bytes);
  }
  return (monotonic_now() - begin) / (2 * kIterations);
}

void run(Side& side, int rank, int rounds) {
  side.open_hca();
  std::vector<std::vector<Ps>> results(kWays.size());
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < kWays.size(); ++i) results[i].push_back(ping_pong(side, rank, kWays[i]));
  }
  side.barrier();
  if (rank != 0) return;
  fmt::print("{:34}{:>10}{:>10}   ns, one way\n", "", "median", "best");
  for (std::size_t i = 0; i < kWays.size(); ++i) {
    std::ranges::sort(results[i]);
    fmt::print("{:34}{:>10}{:>10}\n", kWays[i].name, results[i][results[i].size() / 2] / kNanosecond,
               results[i].front() / kNanosecond);
  }
  side.print_wakeups();
}

int main_of(int rounds) {
  void* const at = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw system_error("map the meeting point", errno);
  Board& board = *new (at) Board;
  const std::array<RingMemory, 2> rings{RingMemory::create(), RingMemory::create()};
  const pid_t child = ::fork();
  const int rank = child == 0 ? 1 : 0;
  int status = 0;
  try {
    Side side(board, rings[rank], rings[1 - rank], rank);
    run(side, rank, rounds);
  } catch (const std::exception& error) {
    fmt::print(stderr, "rank {}: {}\n", rank, error.what());
    status = 1;
  }
  if (child == 0) ::_exit(status);
  int child_status = 0;
  ::waitpid(child, &child_status, 0);
  return status != 0 || child_status != 0;
}

}  // namespace
}  // namespace tensorwire

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 20;
  return tensorwire::main_of(std::max(1, rounds));
}

// What must not be done: the initiator asks for one thing that breaks a rule, and must be told which. Its queue pair is
// in the error state afterwards, so each session tries one. Not a byte of the target may change.
#include <algorithm>
#include <array>
#include <stdexcept>

#include "session.hpp"

namespace tensorwire::rxe {

namespace {

constexpr std::uint32_t kRegion = 8192;
constexpr std::uint32_t kReceive = 16;
constexpr auto kUntouched = std::byte{0x5a};
constexpr int kRefusalBoundMs = 20'000;

struct Forbidden {
  ibv_wr_opcode opcode;
  std::uint32_t length;
  std::uint64_t offset;
  std::uint32_t key_error;  ///< xor to the right key
  bool read_only;           ///< aims at the region without remote write
  ibv_wc_status told;       ///< what the initiator's completion says
  ibv_wc_status by_rxe;     ///< what it says where rxe is the target
};

/// By Refusal. The NAK code follows from the class of the error (InfiniBand vol. 1, 9.7.4 and 9.9.2). rxe deviates
/// twice: a message that is longer than its receive is an invalid request, but Linux 6.1 calls it its own operational
/// error; and it acknowledges a SEND with invalidate that names a region before it fails.
constexpr auto kForbidden = std::to_array<Forbidden>({
    {IBV_WR_RDMA_WRITE, 100, 0, 0x0100, false, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR},
    {IBV_WR_RDMA_WRITE, 100, kRegion - 99, 0, false, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR},
    {IBV_WR_RDMA_WRITE, 100, 0, 0, true, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR},
    {IBV_WR_SEND, kReceive + 1, 0, 0, false, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR},
    {IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 4, 0, false, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_INV_REQ_ERR},
    {IBV_WR_SEND_WITH_INV, 0, 0, 0, false, IBV_WC_REM_ACCESS_ERR, IBV_WC_SUCCESS},
});

void ask(Station& station, const Forbidden& what, const Address& target) {
  Memory source{station.pd(), std::vector<std::byte>(kRegion), IBV_ACCESS_LOCAL_WRITE};
  const RemoteMemory& region = what.read_only ? target.read_only : target.slots;
  ibv_sge sge = source.sge(0, what.length);
  std::array<ibv_send_wr, 1> wr{};
  wr[0].opcode = what.opcode;
  wr[0].send_flags = IBV_SEND_SIGNALED;
  wr[0].sg_list = &sge;
  wr[0].num_sge = 1;
  if (what.opcode == IBV_WR_RDMA_WRITE) {
    wr[0].wr.rdma = {.remote_addr = region.address + what.offset, .rkey = region.key ^ what.key_error};
  } else if (what.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr[0].wr.atomic = {.remote_addr = region.address + what.offset, .compare_add = 1, .swap = 0, .rkey = region.key};
  }
  if (what.opcode == IBV_WR_SEND_WITH_INV) wr[0].invalidate_rkey = region.key;
  station.post_send(wr);
  const std::optional<ibv_wc> wc = station.next_completion(kRefusalBoundMs);
  if (!wc) throw std::runtime_error{"the refusal never came"};
  const ibv_wc_status told = on_soft_hca() ? what.by_rxe : what.told;
  if (wc->status != told) {
    throw std::runtime_error{std::string{"refused as \""} + ibv_wc_status_str(wc->status) + "\", not as \"" +
                             ibv_wc_status_str(told) + "\""};
  }
}

}  // namespace

Outcome run_refusal(Station& station, Control& control, const Settings& settings, Role role) {
  constexpr int kWritable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  constexpr int kReadable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
  const std::vector<std::byte> untouched(kRegion, kUntouched);
  Memory region{station.pd(), untouched, kWritable};
  Memory read_only{station.pd(), untouched, kReadable};
  Address mine = station.address();
  mine.slots = {.address = region.address(), .key = region.key()};
  mine.read_only = {.address = read_only.address(), .key = read_only.key()};
  control.send(mine);
  const auto peer = control.receive<Address>();
  station.connect(peer, settings.path_mtu, settings.ack_timeout);
  if (role == Role::kTarget) station.post_receive(0, region.sge(0, kReceive));
  control.barrier();
  if (role == Role::kInitiator) ask(station, kForbidden[static_cast<std::size_t>(settings.refusal)], peer);
  control.barrier();
  expect_equal(region.bytes(), untouched, "memory that nobody may touch");
  expect_equal(read_only.bytes(), untouched, "memory that nobody may write");
  return {.operations = 1};
}

}  // namespace tensorwire::rxe

// Memory that is lent: for each operation the target binds a memory window of type 2 and tells its key; the initiator
// writes through it, reads back, and gives it back with SEND with invalidate, or with another SEND after which the
// target invalidates it. At the end the initiator tries the last key once more, and must be refused.
#include <algorithm>
#include <array>
#include <stdexcept>

#include "session.hpp"

namespace tensorwire::rxe {

namespace {

constexpr int kLeaseBoundMs = 20'000;
constexpr auto kLeasePoison = std::byte{0x5a};

/// The kernel's own number for IBV_WC_WITH_INV, which rxe of Linux 6.1 hands on to programs as it is.
constexpr unsigned kKernelWithInvalidate = 1U << 2;

/// Every fourth lease is ended by the target.
bool target_ends(std::uint32_t index) noexcept { return index % 4 == 3; }

/// A window must open at least a byte.
std::uint32_t window_length(const Operation& op) noexcept { return std::max(op.length, 1U); }

void expect_opcode(const ibv_wc& wc, ibv_wc_opcode opcode, const char* what) {
  if (wc.opcode != opcode) throw std::runtime_error{std::string{what} + " completed as something else"};
}

class Lender {
 public:
  Lender(Station& station, Control& control, const Settings& settings)
      : station_(station),
        control_(control),
        settings_(settings),
        window_(ibv_alloc_mw(station.pd(), IBV_MW_TYPE_2)),
        bytes_(station.pd(), std::vector<std::byte>(kSlotBytes, kLeasePoison),
               IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND),
        pattern_(pattern(settings.seed)) {
    if (!window_) throw std::runtime_error{"no memory window"};
  }

  Outcome run() {
    for (std::uint32_t index = 0; index < settings_.count; ++index) lend(index);
    control_.barrier();  // all windows are closed
    control_.barrier();  // until the initiator was refused
    if (std::ranges::any_of(bytes_.bytes(), [](std::byte b) { return b != kLeasePoison; })) {
      throw std::runtime_error{"a window that was closed let something through"};
    }
    return outcome_;
  }

 private:
  void lend(std::uint32_t index) {
    const Operation op = operation(settings_, index);
    const std::uint32_t key = ibv_inc_rkey(window_->rkey);
    bind(op, key);
    station_.post_receive(index, std::nullopt);
    control_.barrier();
    control_.send(RemoteMemory{.address = bytes_.address() + op.to, .length = op.length, .key = key});
    const ibv_wc wc = station_.next_success();
    expect_opcode(wc, IBV_WC_RECV, "the end of a lease");
    const bool invalidated = (wc.wc_flags & (on_soft_hca() ? unsigned{IBV_WC_WITH_INV} : kKernelWithInvalidate)) != 0;
    if (invalidated == target_ends(index) || (invalidated && wc.invalidated_rkey != key)) {
      throw std::runtime_error{"lease " + std::to_string(index) + " ended with another key, or without one"};
    }
    if (target_ends(index)) invalidate(key);
    check(op, index);
    ++outcome_.operations;
    outcome_.bytes += op.length;
  }

  void bind(const Operation& op, std::uint32_t key) {
    std::array<ibv_send_wr, 1> wr{};
    wr[0].opcode = IBV_WR_BIND_MW;
    wr[0].send_flags = IBV_SEND_SIGNALED;
    wr[0].bind_mw = {.mw = window_.get(),
                     .rkey = key,
                     .bind_info = {.mr = bytes_.region(),
                                   .addr = bytes_.address() + op.to,
                                   .length = window_length(op),
                                   .mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ}};
    station_.post_send(wr);
    expect_opcode(station_.next_success(), IBV_WC_BIND_MW, "a binding");
    window_->rkey = key;
  }

  void invalidate(std::uint32_t key) {
    std::array<ibv_send_wr, 1> wr{};
    wr[0].opcode = IBV_WR_LOCAL_INV;
    wr[0].send_flags = IBV_SEND_SIGNALED;
    wr[0].invalidate_rkey = key;
    station_.post_send(wr);
    expect_opcode(station_.next_success(), IBV_WC_LOCAL_INV, "a local invalidate");
  }

  /// What was written, and nothing around it; then poison again.
  void check(const Operation& op, std::uint32_t index) {
    const std::span<std::byte> arrived = bytes_.bytes().subspan(op.to, op.length);
    expect_equal(arrived, std::span{pattern_}.subspan(op.from, op.length), "lease " + std::to_string(index));
    std::ranges::fill(arrived, kLeasePoison);
    if (std::ranges::any_of(bytes_.bytes(), [](std::byte b) { return b != kLeasePoison; })) {
      throw std::runtime_error{"lease " + std::to_string(index) + ": written beside the window"};
    }
  }

  Station& station_;
  Control& control_;
  const Settings& settings_;
  Owned<ibv_mw, ibv_dealloc_mw> window_;
  Memory bytes_;
  std::vector<std::byte> pattern_;
  Outcome outcome_;
};

class Borrower {
 public:
  Borrower(Station& station, Control& control, const Settings& settings)
      : station_(station),
        control_(control),
        settings_(settings),
        content_(station.pd(), pattern(settings.seed), IBV_ACCESS_LOCAL_WRITE),
        landing_(station.pd(), std::vector<std::byte>(kMaxLength), IBV_ACCESS_LOCAL_WRITE) {}

  Outcome run() {
    RemoteMemory lent;
    for (std::uint32_t index = 0; index < settings_.count; ++index) {
      control_.barrier();  // throws what went wrong there, if something did
      lent = control_.receive<RemoteMemory>();
      use(index, lent);
    }
    control_.barrier();
    be_refused(lent);
    control_.barrier();
    return outcome_;
  }

 private:
  void use(std::uint32_t index, const RemoteMemory& lent) {
    const Operation op = operation(settings_, index);
    std::array<ibv_sge, 2> sges{content_.sge(op.from, op.length), landing_.sge(0, op.length)};
    std::array<ibv_send_wr, 3> wrs{};
    for (std::size_t i = 0; i < 2; ++i) {
      wrs[i].opcode = i == 0 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
      wrs[i].sg_list = &sges[i];
      wrs[i].num_sge = 1;
      wrs[i].wr.rdma = {.remote_addr = lent.address, .rkey = lent.key};
    }
    wrs[2].opcode = target_ends(index) ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND_WITH_INV;
    if (!target_ends(index)) wrs[2].invalidate_rkey = lent.key;
    wrs[2].send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
    station_.post_send(wrs);
    expect_opcode(station_.next_success(), IBV_WC_SEND, "the end of a lease");
    expect_equal(landing_.bytes().first(op.length), content_.bytes().subspan(op.from, op.length),
                 "lease " + std::to_string(index) + " read back");
    ++outcome_.operations;
    outcome_.bytes += op.length;
  }

  void be_refused(const RemoteMemory& lent) {
    ibv_sge sge = content_.sge(0, 1);
    std::array<ibv_send_wr, 1> wr{};
    wr[0].opcode = IBV_WR_RDMA_WRITE;
    wr[0].send_flags = IBV_SEND_SIGNALED;
    wr[0].sg_list = &sge;
    wr[0].num_sge = 1;
    wr[0].wr.rdma = {.remote_addr = lent.address, .rkey = lent.key};
    station_.post_send(wr);
    const std::optional<ibv_wc> wc = station_.next_completion(kLeaseBoundMs);
    // The NAK may be what is lost: whoever sent it is in ERR and says no more.
    const bool nak_lost = settings_.loss && wc && wc->status == IBV_WC_RETRY_EXC_ERR;
    if (!nak_lost && (!wc || wc->status != IBV_WC_REM_ACCESS_ERR))
      throw std::runtime_error{"a closed window was not refused as such"};
  }

  Station& station_;
  Control& control_;
  const Settings& settings_;
  Memory content_;
  Memory landing_;
  Outcome outcome_;
};

}  // namespace

Outcome run_leases(Station& station, Control& control, const Settings& settings, Role role) {
  control.send(station.address());
  station.connect(control.receive<Address>(), settings.path_mtu, settings.ack_timeout);
  control.barrier();
  if (role == Role::kInitiator) return Borrower{station, control, settings}.run();
  return Lender{station, control, settings}.run();
}

}  // namespace tensorwire::rxe

// The applications open parts of their memory to each other for a while: a window of type 2 at each end, bound by a
// request among the others, its key told to the peer, and closed again by its owner, while the peer's accesses may
// still be under way, or by the peer's SEND.
#include <algorithm>
#include <cerrno>

#include "connection.hpp"
#include "transport/queue_pair.hpp"

namespace tensorwire::transport::faults {

/// For a new life: whatever an earlier one left open is closed.
void Connection::renew_window(std::size_t side) {
  if (windows_random_ == nullptr) return;
  End& end = ends[side];
  std::vector<ReferenceWindow>& all = end.host->registrations.windows;
  if (end.window.key != 0) {
    require(end.host->engine.memory().remove_window(end.window.key), "a window can be deallocated");
    std::erase_if(all, [&](const ReferenceWindow& window) { return window.key >> 8 == end.window.key >> 8; });
  }
  end.window = {};
  end.window.key = end.host->engine.memory().add_window(end.host->pd, WindowType::k2);
  ReferenceWindow& window = all.emplace_back();
  window.key = end.window.key;
  window.pd = end.host->pd;
}

/// Part of what the peer writes to, or of what it reads.
WindowBinding Connection::choose_binding(std::size_t side) {
  Random& random = *windows_random_;
  const bool read = random.below(3) == 0;
  const Zone& zone = read ? directions[side].source : directions[1 - side].target;
  const auto size = static_cast<std::uint32_t>(zone.size);
  const std::uint32_t skipped = random.below(2) == 0 ? 0 : random.below(size / 2);
  WindowBinding binding{zone.address + skipped, size - skipped - (random.below(2) == 0 ? 0 : random.below(size / 4)),
                        zone.key, read ? kAccessRemoteRead : kAccessRemoteWrite};
  if (random.below(40) == 0) binding.length = size + 1;         // beyond the region
  if (random.below(40) == 0) binding.lkey = zone.deregistered;  // of no region
  if (!read && random.below(4) == 0) binding.access |= kAccessRemoteRead;
  return binding;
}

bool Connection::post_local(std::size_t side, Ps now) {
  Random& random = *windows_random_;
  End& end = ends[side];
  Window& window = end.window;
  if (end.life != life || !can_send(end.ref.state) || directions[side].source.key == 0 ||
      directions[1 - side].target.key == 0 || directions[side].source.size < 64 ||
      directions[1 - side].target.size < 64)
    return false;
  SendWr wr;
  wr.wr_id = kLocalRequests + window.requests++;
  wr.fence = random.below(4) == 0;
  WindowBinding binding;
  Window next = window;
  if (window.phase == Window::Phase::kClosed && random.below(40) != 0) {
    binding = choose_binding(side);
    wr.opcode = WrOpcode::kBindWindow;
    wr.binding = &binding;
    next.stale_key = window.key;
    next.key = (window.key & ~0xffU) | ((window.key + 1) & 0xff);
    next.binding = binding;
    next.phase = Window::Phase::kBinding;
  } else if (window.phase == Window::Phase::kOpen && random.below(2) == 0) {
    next.phase = Window::Phase::kPeerCloses;
    window = next;
    return true;
  } else if (window.phase == Window::Phase::kOpen || window.phase == Window::Phase::kClosed) {
    wr.opcode = WrOpcode::kLocalInvalidate;
    next.phase = Window::Phase::kClosing;
  } else {
    return false;
  }
  wr.rkey = next.key;
  const int result = end.qp->post_send(wr);
  const bool full = end.ref.sends_outstanding() == end.caps.max_send_wr;
  require(result == (full ? ENOMEM : 0), "a request is taken unless the ring is full");
  if (full) return false;
  window = next;
  end.ref.post_send(wr, {});
  binding = {};  // copied when posted
  end.host->engine.doorbell(*end.qp, now);
  return true;
}

/// The peer may use the window of the other end, and does so mostly.
void Connection::name_window(std::size_t side, const Operation& op, SendWr& wr) {
  if (windows_random_ == nullptr || op.defect != Defect::kNone || op.length == 0 || ends[side].life != life) return;
  Random& random = *windows_random_;
  const Window& window = ends[1 - side].window;
  if (is_atomic(op.opcode)) return;
  if (op.is_send()) {
    if (op.opcode != WrOpcode::kSend || window.phase != Window::Phase::kPeerCloses || window.asked) return;
    ends[1 - side].window.asked = true;
    wr.opcode = WrOpcode::kSendInvalidate;
    wr.rkey = window.key;
    return;
  }
  if (window.stale_key != 0 && random.below(200) == 0) {
    wr.rkey = window.stale_key;
    return;
  }
  const std::uint32_t right = op.opcode == WrOpcode::kRead ? kAccessRemoteRead : kAccessRemoteWrite;
  const bool open =
      window.phase == Window::Phase::kOpen || (window.phase == Window::Phase::kPeerCloses && !window.asked);
  const bool fits = wr.remote_address >= window.binding.address &&
                    wr.remote_address + op.length <= window.binding.address + window.binding.length &&
                    (window.binding.access & right) != 0;
  if (open ? fits || random.below(200) == 0 : random.below(100) == 0 && window.binding.length != 0)
    wr.rkey = window.key;
}

/// A local request is complete, or a SEND of the peer that names this end's window.
void Connection::check_window(std::size_t side, const Completion& completion) {
  End& end = ends[side];
  Window& window = end.window;
  const bool bound = completion.opcode == WcOpcode::kBindWindow;
  if (bound) {
    if (window.phase == Window::Phase::kBinding) window.phase = Window::Phase::kOpen;
    return;
  }
  const std::uint32_t key = completion.opcode == WcOpcode::kLocalInvalidate ? window.key : completion.invalidated_key;
  require(key == window.key, "a completion names the window that was invalidated");
  Piece piece;
  require(end.host->engine.memory().check_window(key, end.host->pd, end.qpn, window.binding.address, 1, 0, piece) ==
              AccessResult::kBadKey,
          "nothing can be reached through a window that was invalidated");
  window.stale_key = window.key;
  window.phase = Window::Phase::kClosed;
  window.asked = false;
}

}  // namespace tensorwire::transport::faults

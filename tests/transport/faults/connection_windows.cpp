// The applications open parts of their memory to each other for a while: a window at each end, bound by a request among
// the others, its key told to the peer, and closed again by its owner, while the peer's accesses may still be under
// way, or by the peer's SEND.
#include <algorithm>
#include <cerrno>

#include "connection.hpp"
#include "transport/queue_pair.hpp"

namespace tensorwire::transport::faults {

/// For a new life: what an earlier one left open is closed with its window. One of type 1 needs no queue pair, and
/// mostly stays as it is.
void Connection::renew_window(std::size_t side) {
  if (windows_random_ == nullptr) return;
  Random& random = *windows_random_;
  End& end = ends[side];
  Registrations& registrations = end.host->registrations;
  if (end.window.key != 0 && end.window.type == WindowType::k1 && random.below(4) != 0) {
    const ReferenceWindow& window = registrations.window(end.window.key);
    if (window.bound) hits_(Point::kWindowOutlives);
    end.window.key = window.key;
    end.window.binding = window.binding;
    end.window.phase = window.bound ? Window::Phase::kOpen : Window::Phase::kClosed;
    end.window.asked = false;
    return;
  }
  if (end.window.key != 0) {
    require(end.host->engine.memory().remove_window(end.window.key), "a window can be deallocated");
    std::erase_if(registrations.windows, [&](const ReferenceWindow& window) { return end.window.has(window.key); });
  }
  end.window = {};
  end.window.type = random.below(3) == 0 ? WindowType::k1 : WindowType::k2;
  end.window.key = end.host->engine.memory().add_window(end.host->pd, end.window.type);
  registrations.windows.push_back({.type = end.window.type, .key = end.window.key, .pd = end.host->pd, .binding = {}});
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

/// What to do about the window; false: nothing that needs a request. A window of type 1 is bound anew, or to nothing.
bool Connection::choose_local(std::size_t side, Window& window, SendWr& wr) {
  Random& random = *windows_random_;
  const bool open = window.phase == Window::Phase::kOpen;
  if (!open && window.phase != Window::Phase::kClosed) return false;
  const bool first = window.type == WindowType::k1;
  const bool mistaken = random.below(40) == 0;  // nothing is there to invalidate
  if (open && (first ? mistaken : random.below(2) == 0)) {
    window.phase = Window::Phase::kPeerCloses;
    return false;
  }
  if (open ? !first : mistaken) {
    wr.opcode = WrOpcode::kLocalInvalidate;
    window.phase = Window::Phase::kClosing;
    return true;
  }
  const bool closes = open && random.below(2) == 0;
  window.binding = closes ? WindowBinding{} : choose_binding(side);
  window.stale_key = window.key;
  window.key = (window.key & ~0xffU) | ((window.key + 1) & 0xff);
  window.phase = closes ? Window::Phase::kClosing : Window::Phase::kBinding;
  wr.opcode = WrOpcode::kBindWindow;
  return true;
}

bool Connection::post_local(std::size_t side, Ps now) {
  End& end = ends[side];
  if (end.life != life || !can_send(end.ref.state) || directions[side].source.key == 0 ||
      directions[1 - side].target.key == 0 || directions[side].source.size < 64 ||
      directions[1 - side].target.size < 64)
    return false;
  Window next = end.window;
  SendWr wr;
  wr.wr_id = kLocalRequests + next.requests++;
  wr.fence = windows_random_->below(4) == 0;
  if (!choose_local(side, next, wr)) {
    end.window = next;
    return false;
  }
  WindowBinding binding = next.binding;
  wr.rkey = next.key;
  wr.binding = wr.opcode == WrOpcode::kBindWindow ? &binding : nullptr;
  const int result = end.qp->post_send(wr);
  const bool full = end.ref.sends_outstanding() == end.caps.max_send_wr;
  require(result == (full ? ENOMEM : 0), "a request is taken unless the ring is full");
  if (full) return false;
  end.window = next;
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
  if (completion.opcode == WcOpcode::kBindWindow && window.phase == Window::Phase::kBinding) {
    window.phase = Window::Phase::kOpen;
    return;
  }
  const bool unbound = completion.opcode == WcOpcode::kBindWindow;
  const bool by_peer = completion.opcode == WcOpcode::kRecv;
  require(!by_peer || completion.invalidated_key == window.key, "a completion names the window that was invalidated");
  if (!unbound) window.stale_key = window.key;
  for (const std::uint32_t key : {window.stale_key, window.key}) {
    Piece piece;
    require(end.host->engine.memory().check_window(key, end.host->pd, end.qpn, window.binding.address, 1, 0, piece) ==
                AccessResult::kBadKey,
            "nothing can be reached through a window that was closed");
  }
  window.phase = Window::Phase::kClosed;
  window.asked = false;
}

}  // namespace tensorwire::transport::faults

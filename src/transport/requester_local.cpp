// Requester, requests that need no packet: binding and invalidating memory windows.
#include "transport/qp.hpp"
#include "transport/requester.hpp"

namespace tensorwire::transport {

// Its place among PSNs is between those of its neighbours. What was sent before it may still have to be sent again, and
// then comes by here again; but nothing that this queue pair sends depends on a window.
void Requester::pass_local(SendWqe& wqe) noexcept {
  if (next_index_ == started_) {
    wqe.first_psn = next_psn_;
    wqe.packets = wqe.request_packets = 0;
    if (!execute_local(next_index_)) return stall(WcStatus::kWindowBindError);
    ++started_;
  }
  ++next_index_;
  SendQueue& queue = qp_.send_queue();
  while (queue.head() != started_ && queue.at(queue.head()).local) complete_head(WcStatus::kSuccess);
  schedule();
}

bool Requester::execute_local(std::uint32_t index) noexcept {
  const SendWqe& wqe = qp_.send_queue().at(index);
  const PdId pd = qp_.init().pd;
  if (wqe.opcode == WrOpcode::kBindWindow)
    return core_.memory.bind(wqe.rkey, qp_.send_queue().binding(index), pd, qp_.qpn());
  return core_.memory.invalidate(wqe.rkey, pd, qp_.qpn());
}

}  // namespace tensorwire::transport

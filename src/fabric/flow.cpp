#include "fabric/flow.hpp"

namespace tensorwire::fabric {

using namespace transport;

Flow::Flow(Fabric& fabric, const FlowConfig& config) : fabric_(fabric), config_(config) {
  config_.connection.send_depth = config.outstanding;
  qp_ = fabric.connect(config.from, config.to, config_.connection, this, nullptr).a;
  fabric.call_at(config.start, *this);
}

void Flow::act(Ps /*now*/) {
  for (std::uint32_t n = 0; n < config_.outstanding; ++n) post_next();
}

void Flow::post_next() {
  if (config_.messages != 0 && posted_ == config_.messages) return;
  const Sge sge{kUserMemory, config_.message_bytes, fabric_.host(config_.from).key};
  SendWr wr;
  wr.wr_id = posted_++;
  wr.opcode = WrOpcode::kWrite;
  wr.remote_address = kUserMemory;
  wr.rkey = fabric_.host(config_.to).key;
  wr.sges = {&sge, 1};
  fabric_.post(config_.from, *qp_, wr);
}

void Flow::on_completion(const Completion& completion, Ps now) {
  if (completion.status != WcStatus::kSuccess) {
    failed_ = true;
    return;
  }
  ++completed_;
  if (!finished()) return post_next();
  finished_at_ = now;
  if (config_.on_finished) config_.on_finished();
}

}  // namespace tensorwire::fabric

// The public face of a communicator, and what it tells of itself.
#include "comm/communicator.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/communicator_state.hpp"

namespace tensorwire::comm {

bool Communicator::State::write(const WriteRequest& request) noexcept {
  if (request.token != collective::kNoToken) ++user_writes_;
  const Ps begun = trace_ != nullptr ? monotonic_now() : 0;
  const bool posted = post(request);
  if (trace_ != nullptr) trace_->on_write(request, begun);
  return posted;
}

bool Communicator::State::post(const WriteRequest& request) noexcept {
  if (!options_.fault_hook) return link_->post_write(request);
  WriteRequest changed = request;
  options_.fault_hook(changed);
  return link_->post_write(changed);
}

bool Communicator::State::register_buffer(const void* address, std::size_t bytes) noexcept try {
  if (broken_) return false;
  static_cast<void>(link_->key_of(address, bytes));
  return true;
} catch (const std::exception& error) {
  return refuse(error.what());
}

bool Communicator::State::register_output(void* address, std::size_t bytes) noexcept try {
  if (broken_) return false;
  if (link_->has_windows()) static_cast<void>(link_->output_of(address, bytes));
  return true;
} catch (const std::exception& error) {
  return refuse(error.what());
}

collective::RunnerCounters Communicator::State::counters() const noexcept {
  collective::RunnerCounters counters = runner_->counters();
  if (options_.moves_only) counters.bytes_copied = 0;  // it was asked to, and left it to the caller
  counters.bytes_copied += staging_.copied();
  return counters;
}

CommStats Communicator::State::stats() const {
  CommStats stats;
  stats.operations = operation_sequence_ + exchanges_;
  stats.bytes = bytes_moved_;
  stats.runner = counters();
  stats.sizes = observer_->sizes();
  stats.device = observer_->device();
  stats.retransmissions = retransmissions(stats.device);
  for (std::uint32_t peer = 0; peer < config_.ranks; ++peer) {
    if (peer == config_.rank) continue;
    stats.peers.push_back(
        {static_cast<int>(peer), link_->describe(peer), link_->stats(peer), observer_->waited_for(peer)});
  }
  return stats;
}

// The public face.
Communicator::Communicator(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Communicator::~Communicator() = default;

void Communicator::watch_gpu(GpuSource source) { state_->observer().watch_gpu(std::move(source)); }
void Communicator::leave_gpu() noexcept { state_->observer().leave_gpu(); }

bool Communicator::run(const Call& call) noexcept { return state_->begin(call) && state_->finish(); }
bool Communicator::run(std::span<const Transfer> transfers) noexcept {
  return state_->begin(transfers) && state_->finish();
}
bool Communicator::begin(const Call& call) noexcept { return state_->begin(call); }
bool Communicator::begin(std::span<const Transfer> transfers) noexcept { return state_->begin(transfers); }
Progress Communicator::advance() noexcept { return state_->advance(); }
bool Communicator::all_reduce(const void* in, void* out, std::size_t count, collective::DType dtype,
                              collective::Op op) noexcept {
  Call call;
  call.in = in;
  call.out = out;
  call.count = count;
  call.dtype = dtype;
  call.op = op;
  return run(call);
}
bool Communicator::register_buffer(const void* address, std::size_t bytes) noexcept {
  return state_->register_buffer(address, bytes);
}
bool Communicator::register_output(void* address, std::size_t bytes) noexcept {
  return state_->register_output(address, bytes);
}
std::optional<std::string> Communicator::problem_with(const Call& call) const { return state_->argument_problem(call); }
std::optional<std::string> Communicator::problem_with(const Transfer& transfer) const {
  return state_->argument_problem(transfer);
}
collective::Extent Communicator::extent_of(const Call& call) const { return state_->extent_of(call); }
void Communicator::deregister_buffer(const void* address, std::size_t bytes) noexcept {
  state_->link().forget(address, bytes);
}
void Communicator::abort(const std::string& reason) noexcept { state_->abort(reason); }
void Communicator::retire(const std::string& why) noexcept { state_->retire(why); }
std::shared_ptr<const bootstrap::MeetingPlaces> Communicator::meeting_places() const noexcept {
  return state_->meeting_places();
}
const CommError* Communicator::error() const noexcept { return state_->error(); }
CommStats Communicator::stats() const { return state_->stats(); }
collective::RunnerCounters Communicator::counters() const noexcept { return state_->counters(); }
std::optional<std::uint64_t> Communicator::device_counter(std::string_view name) const {
  return state_->link().device_counter(name);
}
int Communicator::rank() const noexcept { return static_cast<int>(state_->config().rank); }
int Communicator::size() const noexcept { return static_cast<int>(state_->config().ranks); }
collective::Algorithm Communicator::algorithm_for(std::size_t count, collective::DType dtype) const noexcept {
  return collective::choose({state_->config().ranks, count, dtype, collective::Op::kSum}, state_->options().thresholds);
}
std::string Communicator::describe() const { return state_->describe(); }

}  // namespace tensorwire::comm

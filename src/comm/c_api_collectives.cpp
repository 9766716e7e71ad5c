// The collectives and messages of the C API: arguments are translated, then the operation runs at once or joins this
// thread's group.
#include <optional>
#include <string>

#include "comm/c_api_calls.hpp"
#include "comm/c_api_gpu.hpp"
#include "comm/c_api_group.hpp"

using namespace tensorwire;
using collective::Collective;

namespace {

std::optional<collective::Op> op_from(int op) noexcept {
  switch (op) {
    case twSum:
      return collective::Op::kSum;
    case twMax:
      return collective::Op::kMax;
    case twAvg:
      return collective::Op::kAverage;
    default:
      return std::nullopt;
  }
}

/// What the arguments of a call of the C API have in common.
struct Arguments {
  const char* call;
  twComm_t comm;
  void* stream;
  int dtype = twFloat32;
  int op = twSum;
};

bool is_barrier(const comm::Call& call) noexcept { return call.collective == Collective::kBarrier; }
bool is_barrier(const comm::Transfer& /*transfer*/) noexcept { return false; }

/// @param what a Call or Transfer with everything but its types
template <typename Operation>
twResult_t submit(const Arguments& arguments, Operation what) noexcept {
  return operate(arguments.call, arguments.comm, [&](comm::Communicator& communicator) {
    twComm& handle = *arguments.comm;
    const auto problem = [&](const std::string& why) {
      return handle.refuse(twInvalidArgument, std::string{arguments.call} + ": " + why);
    };
    const auto dtype = dtype_from(arguments.dtype);
    const auto op = op_from(arguments.op);
    if (!dtype) return problem("the element type is unknown");
    if (!op) return problem("the operator is unknown");
    what.dtype = *dtype;
    if constexpr (requires { what.op; }) what.op = *op;
    BufferPlace place = place_of(what);
    if (is_barrier(what) && arguments.stream != nullptr && handle.gpu() != nullptr) place.gpu = handle.gpu()->device();
    if (place.is_mixed) return problem("one buffer is memory of a GPU, and the other is not of the same GPU");
    if (place.gpu) {
      if (const auto why = communicator.problem_with(what)) return problem(*why);
      return submit_to_gpu({arguments.call, handle, *place.gpu, arguments.stream}, what);
    }
    if (arguments.stream != nullptr) return problem("streams are for memory of a GPU. Pass NULL");
    if (!thread_group().is_open()) {
      if constexpr (requires { what.op; }) {
        return handle.result_of(communicator.run(what));
      } else {
        return handle.result_of(communicator.run(std::span<const Operation>{&what, 1}));
      }
    }
    if (const auto why = communicator.problem_with(what)) return problem(*why);
    try {
      thread_group().add(handle, what);
      return twSuccess;
    } catch (const std::exception& error) {
      return handle.refuse(twInternalError, error.what());
    }
  });
}

comm::Call call_of(Collective collective, const void* send, void* recv, size_t count, int root = 0) noexcept {
  comm::Call call;
  call.collective = collective;
  call.in = send;
  call.out = recv;
  call.count = count;
  call.root = root;
  return call;
}

}  // namespace

twResult_t twAllReduce(const void* send, void* recv, size_t count, twDataType_t dtype, twRedOp_t op, twComm_t comm,
                       void* stream) {
  return submit({"twAllReduce", comm, stream, static_cast<int>(dtype), static_cast<int>(op)},
                call_of(Collective::kAllReduce, send, recv, count));
}

twResult_t twReduceScatter(const void* send, void* recv, size_t recvcount, twDataType_t dtype, twRedOp_t op,
                           twComm_t comm, void* stream) {
  return submit({"twReduceScatter", comm, stream, static_cast<int>(dtype), static_cast<int>(op)},
                call_of(Collective::kReduceScatter, send, recv, recvcount));
}

twResult_t twAllGather(const void* send, void* recv, size_t sendcount, twDataType_t dtype, twComm_t comm,
                       void* stream) {
  return submit({"twAllGather", comm, stream, static_cast<int>(dtype)},
                call_of(Collective::kAllGather, send, recv, sendcount));
}

twResult_t twBroadcast(const void* send, void* recv, size_t count, twDataType_t dtype, int root, twComm_t comm,
                       void* stream) {
  return submit({"twBroadcast", comm, stream, static_cast<int>(dtype)},
                call_of(Collective::kBroadcast, send, recv, count, root));
}

twResult_t twAllToAll(const void* send, void* recv, size_t count, twDataType_t dtype, twComm_t comm, void* stream) {
  return submit({"twAllToAll", comm, stream, static_cast<int>(dtype)},
                call_of(Collective::kAllToAll, send, recv, count));
}

twResult_t twAllToAllv(const void* send, void* recv, const size_t* counts, twDataType_t dtype, twComm_t comm,
                       void* stream) {
  if (comm == nullptr) return no_communicator("twAllToAllv");
  if (counts == nullptr) return refuse(comm, twInvalidArgument, "twAllToAllv: the counts are null");
  static_assert(sizeof(size_t) == sizeof(std::uint64_t));
  comm::Call call = call_of(Collective::kAllToAll, send, recv, 0);
  call.counts = {counts, static_cast<std::size_t>(comm->ranks()) * static_cast<std::size_t>(comm->ranks())};
  for (const std::uint64_t count : call.counts) call.count = count > call.count ? count : call.count;
  return submit({"twAllToAllv", comm, stream, static_cast<int>(dtype)}, call);
}

twResult_t twSend(const void* send, size_t count, twDataType_t dtype, int peer, twComm_t comm, void* stream) {
  comm::Transfer transfer;
  transfer.sends = true;
  transfer.peer = peer;
  transfer.buffer = const_cast<void*>(send);  // only read
  transfer.count = count;
  return submit({"twSend", comm, stream, static_cast<int>(dtype)}, transfer);
}

twResult_t twRecv(void* recv, size_t count, twDataType_t dtype, int peer, twComm_t comm, void* stream) {
  comm::Transfer transfer;
  transfer.peer = peer;
  transfer.buffer = recv;
  transfer.count = count;
  return submit({"twRecv", comm, stream, static_cast<int>(dtype)}, transfer);
}

twResult_t twBarrier(twComm_t comm, void* stream) {
  return submit({"twBarrier", comm, stream}, call_of(Collective::kBarrier, nullptr, nullptr, 0));
}

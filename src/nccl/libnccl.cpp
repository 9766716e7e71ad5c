// The functions of libnccl.so.2 that inference engines load by name, on top of Tensorwire's C API. What Tensorwire does
// not do is refused with ncclInvalidUsage; every error is a line on stderr, for most programs show a number only.
#include <cstdio>
#include <cstring>
#include <string>

#include "base/cuda_driver.hpp"
#include "nccl/scratch.hpp"
#include "nccl/translate.hpp"

using namespace tensorwire::nccl;

#define TW_NCCL extern "C" __attribute__((visibility("default")))

namespace {

thread_local std::string last_line;
thread_local int open_groups = 0;

Result say(Result result, std::string line) noexcept {
  last_line = std::move(line);
  std::fprintf(stderr, "tensorwire: %s\n", last_line.c_str());
  return result;
}

/// @param comm whose line tells more; null: this thread's
Result answer(const char* function, twResult_t result, Comm comm = nullptr) noexcept {
  if (result == twSuccess || result == twInProgress) return result_of(result);
  const std::string line = twGetLastError(comm);
  return say(result_of(result), std::string{function} + ": " + (line.empty() ? twGetErrorString(result) : line));
}

Result refuse(const char* function, const std::string& what) noexcept {
  return say(kInvalidUsage, std::string{function} + ": " + what);
}

/// call(dtype, op), if Tensorwire reduces so.
template <typename Call>
Result reduce(const char* function, DataType dtype, RedOp op, Comm comm, Call&& call) noexcept {
  const auto type = reduced(dtype);
  const auto by = reduced_by(op);
  if (!type || !by) {
    return refuse(function,
                  std::string{name_of(dtype)} + " by " + name_of(op) +
                      " is not reduced; ncclFloat32, ncclFloat16, ncclBfloat16 and ncclInt32 are, by ncclSum, "
                      "ncclMax and ncclAvg");
  }
  return answer(function, call(*type, *by), comm);
}

/// call(dtype, count), if the bytes are whole elements of Tensorwire's.
template <typename Call>
Result move(const char* function, std::size_t count, DataType dtype, std::initializer_list<const void*> buffers,
            Comm comm, Call&& call) noexcept {
  const auto elements = moved(count, dtype, buffers);
  if (!elements) {
    return refuse(function, std::to_string(count) + " of " + name_of(dtype) +
                                " are not moved: their address or number of bytes is odd");
  }
  return answer(function, call(elements->dtype, elements->count), comm);
}

}  // namespace

// --- Library and communicators ---------------------------------------------------------------------------------------

TW_NCCL Result ncclGetVersion(int* version) {
  if (version == nullptr) return say(kInvalidArgument, "ncclGetVersion: the pointer is null");
  *version = kInterfaceVersion;
  return kSuccess;
}

TW_NCCL const char* ncclGetErrorString(Result result) { return twGetErrorString(static_cast<twResult_t>(result)); }

TW_NCCL const char* ncclGetLastError(Comm /*comm*/) { return last_line.c_str(); }

TW_NCCL Result ncclGetUniqueId(UniqueId* id) {
  return answer("ncclGetUniqueId", twGetUniqueId(reinterpret_cast<twUniqueId*>(id)));
}

TW_NCCL Result ncclCommInitRank(Comm* comm, int ranks, UniqueId id, int rank) {
  twUniqueId same;
  std::memcpy(&same, &id, sizeof same);
  return answer("ncclCommInitRank", twCommInitRank(comm, ranks, same, rank));
}

TW_NCCL Result ncclCommDestroy(Comm comm) {
  const Result result = answer("ncclCommDestroy", twCommDestroy(comm));
  free_scratch_of(comm);
  return result;
}

/// Frees the communicator, as NCCL's does and twCommAbort does not.
TW_NCCL Result ncclCommAbort(Comm comm) {
  const Result result = answer("ncclCommAbort", twCommAbort(comm), comm);
  if (result != kSuccess) return result;
  const Result destroyed = answer("ncclCommAbort", twCommDestroy(comm));
  free_scratch_of(comm);
  return destroyed;
}

TW_NCCL Result ncclCommGetAsyncError(Comm comm, Result* state) {
  if (state == nullptr) return say(kInvalidArgument, "ncclCommGetAsyncError: the pointer is null");
  twResult_t own = twSuccess;
  const Result result = answer("ncclCommGetAsyncError", twCommGetAsyncError(comm, &own), comm);
  *state = result_of(own);
  return result;
}

TW_NCCL Result ncclCommCount(Comm comm, int* count) { return answer("ncclCommCount", twCommCount(comm, count), comm); }
TW_NCCL Result ncclCommUserRank(Comm comm, int* rank) {
  return answer("ncclCommUserRank", twCommUserRank(comm, rank), comm);
}

TW_NCCL Result ncclGroupStart() {
  const Result result = answer("ncclGroupStart", twGroupStart());
  if (result == kSuccess) ++open_groups;
  return result;
}
TW_NCCL Result ncclGroupEnd() {
  const Result result = answer("ncclGroupEnd", twGroupEnd());
  if (open_groups > 0 && --open_groups == 0) give_back_scratch();
  return result;
}

// --- Reductions ------------------------------------------------------------------------------------------------------

TW_NCCL Result ncclAllReduce(const void* send, void* recv, std::size_t count, DataType dtype, RedOp op, Comm comm,
                             void* stream) {
  return reduce("ncclAllReduce", dtype, op, comm, [&](twDataType_t type, twRedOp_t by) {
    return twAllReduce(send, recv, count, type, by, comm, stream);
  });
}

TW_NCCL Result ncclReduceScatter(const void* send, void* recv, std::size_t recv_count, DataType dtype, RedOp op,
                                 Comm comm, void* stream) {
  return reduce("ncclReduceScatter", dtype, op, comm, [&](twDataType_t type, twRedOp_t by) {
    return twReduceScatter(send, recv, recv_count, type, by, comm, stream);
  });
}

/// An all-reduce whose result all ranks but the root throw away.
TW_NCCL Result ncclReduce(const void* send, void* recv, std::size_t count, DataType dtype, RedOp op, int root,
                          Comm comm, void* stream) {
  int rank = 0, ranks = 0;
  for (const twResult_t asked : {twCommUserRank(comm, &rank), twCommCount(comm, &ranks)}) {
    if (asked != twSuccess) return answer("ncclReduce", asked, comm);
  }
  if (root < 0 || root >= ranks) return say(kInvalidArgument, "ncclReduce: there is no rank " + std::to_string(root));
  void* out = recv;
  if (rank != root && count != 0 && reduced(dtype)) {
    const std::size_t bytes = count * size_of(dtype);
    out = take_scratch(comm, tensorwire::cuda_device_of(send), bytes);
    if (out == nullptr) {
      return say(kSystemError,
                 "ncclReduce: there are no " + std::to_string(bytes) + " bytes for a result nobody wants");
    }
  }
  const Result result = reduce("ncclReduce", dtype, op, comm, [&](twDataType_t type, twRedOp_t by) {
    return twAllReduce(send, out, count, type, by, comm, stream);
  });
  if (open_groups == 0) give_back_scratch();
  return result;
}

// --- Moves -----------------------------------------------------------------------------------------------------------

TW_NCCL Result ncclAllGather(const void* send, void* recv, std::size_t send_count, DataType dtype, Comm comm,
                             void* stream) {
  return move("ncclAllGather", send_count, dtype, {send, recv}, comm,
              [&](twDataType_t type, std::size_t count) { return twAllGather(send, recv, count, type, comm, stream); });
}

TW_NCCL Result ncclBroadcast(const void* send, void* recv, std::size_t count, DataType dtype, int root, Comm comm,
                             void* stream) {
  return move("ncclBroadcast", count, dtype, {send, recv}, comm, [&](twDataType_t type, std::size_t elements) {
    return twBroadcast(send, recv, elements, type, root, comm, stream);
  });
}

TW_NCCL Result ncclSend(const void* send, std::size_t count, DataType dtype, int peer, Comm comm, void* stream) {
  return move("ncclSend", count, dtype, {send}, comm, [&](twDataType_t type, std::size_t elements) {
    return twSend(send, elements, type, peer, comm, stream);
  });
}

TW_NCCL Result ncclRecv(void* recv, std::size_t count, DataType dtype, int peer, Comm comm, void* stream) {
  return move("ncclRecv", count, dtype, {recv}, comm, [&](twDataType_t type, std::size_t elements) {
    return twRecv(recv, elements, type, peer, comm, stream);
  });
}

// --- Windows ---------------------------------------------------------------------------------------------------------

/// `flags` ask for symmetric memory, which Tensorwire's windows need not be.
TW_NCCL Result ncclCommWindowRegister(Comm comm, void* buffer, std::size_t bytes, Window* window, int /*flags*/) {
  return answer("ncclCommWindowRegister", twCommWindowRegister(comm, buffer, bytes, window, TW_WINDOW_DEFAULT), comm);
}

TW_NCCL Result ncclCommWindowDeregister(Comm comm, Window window) {
  return answer("ncclCommWindowDeregister", twCommWindowDeregister(comm, window), comm);
}

// The C API: arguments are checked and translated here, the work is done by twComm (c_api_handle.hpp). No exception
// leaves.
#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "bootstrap/unique_id.hpp"
#include "comm/c_api_config.hpp"
#include "comm/c_api_handle.hpp"
#include "comm/c_api_thread.hpp"

using namespace tensorwire;

namespace {

/// Refusals of calls without a communicator.
twResult_t refuse(twResult_t result, std::string line) noexcept {
  set_thread_line(std::move(line));
  return result;
}

twResult_t refuse(twComm_t comm, twResult_t result, std::string line) noexcept {
  return comm != nullptr ? comm->refuse(result, std::move(line)) : refuse(result, std::move(line));
}

twResult_t no_communicator(const char* call) noexcept {
  return refuse(twInvalidArgument, fmt::format("{}: the communicator is null", call));
}

/// Joins at once or, where the configuration says so, in a thread. *comm is the handle, or null on an error.
twResult_t init(twComm_t* comm, bootstrap::GroupOptions group, const twConfig_t* config) {
  const twConfig_t chosen = config != nullptr ? *config : twConfig_t TW_CONFIG_INITIALIZER;
  auto handle = std::make_unique<twComm>(std::move(group), options_from(chosen));
  twResult_t result = twInProgress;
  if (blocks(chosen)) {
    result = handle->set_up();
    if (result != twSuccess) return refuse(result, handle->last_line());
  } else {
    handle->set_up_in_thread();
  }
  *comm = handle.release();
  return result;
}

/// Runs a set-up call; what it throws is about arguments or this machine.
template <typename Body>
twResult_t guarded(const char* call, twResult_t on_error, Body&& body) noexcept {
  try {
    return body();
  } catch (const Error& error) {
    return refuse(on_error, error.what());
  } catch (const std::exception& error) {
    return refuse(twInternalError, fmt::format("{}: {}", call, error.what()));
  }
}

/// Runs an operation while the handle is ours.
template <typename Body>
twResult_t operate(const char* call, twComm_t comm, Body&& body) noexcept {
  if (comm == nullptr) return no_communicator(call);
  const HandleInUse mine{*comm};
  if (!mine) {
    return comm->refuse(twInvalidUsage, fmt::format("{}: another thread is using this communicator", call));
  }
  if (const twResult_t state = comm->state(); state != twSuccess) {
    if (state != twInProgress) return state;
    return comm->refuse(twInvalidUsage, fmt::format("{}: the communicator is still being set up", call));
  }
  if (comm->communicator() == nullptr) {
    return comm->refuse(twInvalidUsage, fmt::format("{}: the communicator was finalized", call));
  }
  return body(*comm->communicator());
}

std::optional<collective::DType> dtype_from(int dtype) noexcept {
  switch (dtype) {
    case twFloat32:
      return collective::DType::kFloat32;
    case twFloat16:
      return collective::DType::kFloat16;
    case twBfloat16:
      return collective::DType::kBfloat16;
    default:
      return std::nullopt;
  }
}

std::optional<collective::Op> op_from(int op) noexcept {
  if (op == twSum) return collective::Op::kSum;
  return std::nullopt;
}

}  // namespace

twResult_t twGetVersion(int* version) {
  if (version == nullptr) return refuse(twInvalidArgument, "twGetVersion: the pointer is null");
  *version = TENSORWIRE_VERSION;
  return twSuccess;
}

const char* twGetErrorString(twResult_t result) {
  switch (result) {
    case twSuccess:
      return "no error";
    case twSystemError:
      return "the system or the transport failed";
    case twInternalError:
      return "internal error";
    case twInvalidArgument:
      return "invalid argument";
    case twInvalidUsage:
      return "invalid usage";
    case twRemoteError:
      return "another rank failed";
    case twInProgress:
      return "still in progress";
    case twTimeout:
      return "not over in time";
    case twDisagreement:
      return "the ranks disagree";
    case twAborted:
      return "aborted";
  }
  return "unknown result";
}

const char* twGetLastError(twComm_t comm) {
  return comm == nullptr ? thread_line() : shown_line([&] { return comm->last_line(); });
}

twResult_t twGetUniqueId(twUniqueId* id) {
  if (id == nullptr) return refuse(twInvalidArgument, "twGetUniqueId: the pointer is null");
  return guarded("twGetUniqueId", twSystemError, [&] {
    const bootstrap::UniqueId made = bootstrap::make_unique_id();
    static_assert(sizeof made == sizeof id->internal);
    std::memcpy(id->internal, made.data(), made.size());
    return twSuccess;
  });
}

twResult_t twCommInitRank(twComm_t* comm, int nranks, twUniqueId id, int rank) {
  return twCommInitRankConfig(comm, nranks, id, rank, nullptr);
}

twResult_t twCommInitRankConfig(twComm_t* comm, int nranks, twUniqueId id, int rank, const twConfig_t* config) {
  if (comm == nullptr) return refuse(twInvalidArgument, "twCommInitRank: the pointer is null");
  *comm = nullptr;
  return guarded("twCommInitRank", twInvalidArgument, [&] {
    std::array<std::byte, bootstrap::kUniqueIdBytes> bytes;
    std::memcpy(bytes.data(), id.internal, bytes.size());
    return init(comm, bootstrap::options_of(bytes, rank, nranks), config);
  });
}

twResult_t twCommInitFromEnv(twComm_t* comm, const twConfig_t* config) {
  if (comm == nullptr) return refuse(twInvalidArgument, "twCommInitFromEnv: the pointer is null");
  *comm = nullptr;
  return guarded("twCommInitFromEnv", twInvalidUsage,
                 [&] { return init(comm, bootstrap::detect_options(bootstrap::process_environment()), config); });
}

twResult_t twCommGetAsyncError(twComm_t comm, twResult_t* state) {
  if (comm == nullptr) return no_communicator("twCommGetAsyncError");
  if (state == nullptr) return refuse(comm, twInvalidArgument, "twCommGetAsyncError: the pointer is null");
  *state = comm->state();
  return twSuccess;
}

twResult_t twCommCount(twComm_t comm, int* nranks) {
  if (comm == nullptr) return no_communicator("twCommCount");
  if (nranks == nullptr) return refuse(comm, twInvalidArgument, "twCommCount: the pointer is null");
  *nranks = comm->ranks();
  return twSuccess;
}

twResult_t twCommUserRank(twComm_t comm, int* rank) {
  if (comm == nullptr) return no_communicator("twCommUserRank");
  if (rank == nullptr) return refuse(comm, twInvalidArgument, "twCommUserRank: the pointer is null");
  *rank = comm->rank();
  return twSuccess;
}

twResult_t twCommFinalize(twComm_t comm) {
  if (comm == nullptr) return no_communicator("twCommFinalize");
  const HandleInUse mine{*comm};
  if (!mine) return comm->refuse(twInvalidUsage, "twCommFinalize: another thread is using this communicator");
  comm->close();
  return twSuccess;
}

twResult_t twCommDestroy(twComm_t comm) {
  if (comm == nullptr) return twSuccess;
  if (const twResult_t result = twCommFinalize(comm); result != twSuccess) return result;
  delete comm;
  return twSuccess;
}

twResult_t twCommAbort(twComm_t comm) {
  if (comm == nullptr) return no_communicator("twCommAbort");
  comm->abort();
  return twSuccess;
}

twResult_t twCommRequestAbort(twComm_t comm) {
  if (comm == nullptr) return twInvalidArgument;
  comm->request_abort();
  return twSuccess;
}

twResult_t twAllReduce(const void* send, void* recv, size_t count, twDataType_t dtype, twRedOp_t op, twComm_t comm,
                       void* stream) {
  return operate("twAllReduce", comm, [&](comm::Communicator& communicator) {
    if (stream != nullptr) {
      return comm->refuse(twInvalidArgument,
                          "twAllReduce: streams are for GPU memory, which this build does not know. Pass NULL");
    }
    const auto element = dtype_from(static_cast<int>(dtype));
    const auto reduction = op_from(static_cast<int>(op));
    if (!element) return comm->refuse(twInvalidArgument, "twAllReduce: the element type is unknown");
    if (!reduction) return comm->refuse(twInvalidArgument, "twAllReduce: the operator is unknown");
    return comm->result_of(communicator.all_reduce(send, recv, count, *element, *reduction));
  });
}

// The C API's communicators: how they come, split, tell of themselves and go. The work is done by twComm
// (c_api_handle.hpp). No exception leaves.
#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "bootstrap/unique_id.hpp"
#include "comm/c_api_calls.hpp"
#include "comm/c_api_config.hpp"
#include "comm/c_api_group.hpp"

using namespace tensorwire;

namespace {

/// Joins at once, in a thread where set-up need not block, or with this thread's group. *comm is the handle, or null on
/// an error.
twResult_t join(twComm_t* comm, bootstrap::GroupOptions group, const comm::CommOptions& options, bool blocking) {
  auto handle = std::make_unique<twComm>(std::move(group), options);
  if (!blocking || thread_group().is_open()) {
    handle->set_up_in_thread();
    *comm = handle.release();
    if (!blocking) return twInProgress;
    thread_group().add_set_up(comm);
    return twSuccess;
  }
  const twResult_t result = handle->set_up();
  if (result != twSuccess) return refuse(result, handle->last_line());
  *comm = handle.release();
  return twSuccess;
}

twResult_t join(twComm_t* comm, bootstrap::GroupOptions group, const twConfig_t* config) {
  const twConfig_t chosen = config != nullptr ? *config : twConfig_t TW_CONFIG_INITIALIZER;
  return join(comm, std::move(group), options_from(chosen), blocks(chosen));
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
    return join(comm, bootstrap::options_of(bytes, rank, nranks), config);
  });
}

twResult_t twCommInitFromEnv(twComm_t* comm, const twConfig_t* config) {
  if (comm == nullptr) return refuse(twInvalidArgument, "twCommInitFromEnv: the pointer is null");
  *comm = nullptr;
  return guarded("twCommInitFromEnv", twInvalidUsage,
                 [&] { return join(comm, bootstrap::detect_options(bootstrap::process_environment()), config); });
}

twResult_t twCommGetAsyncError(twComm_t comm, twResult_t* state) {
  if (comm == nullptr) return no_communicator("twCommGetAsyncError");
  if (state == nullptr) return refuse(comm, twInvalidArgument, "twCommGetAsyncError: the pointer is null");
  *state = comm->state_seen_from_outside();
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

twResult_t twCommSplit(twComm_t comm, int color, int key, twComm_t* made, const twConfig_t* config) {
  if (comm == nullptr) return no_communicator("twCommSplit");
  if (made == nullptr) return refuse(comm, twInvalidArgument, "twCommSplit: the pointer is null");
  *made = nullptr;
  if (thread_group().is_open())
    return refuse(comm, twInvalidUsage, "twCommSplit: not between twGroupStart and twGroupEnd");
  const HandleInUse mine{*comm};
  if (const twResult_t ready = comm->ready("twCommSplit", mine); ready != twSuccess) return ready;
  try {
    const auto options = bootstrap::split(comm->group(), color, key);
    if (!options) return twSuccess;
    const twConfig_t chosen = config != nullptr ? *config : twConfig_t TW_CONFIG_INITIALIZER;
    const twResult_t result =
        join(made, *options, config != nullptr ? options_from(chosen) : comm->options(), blocks(chosen));
    return result == twSuccess || result == twInProgress ? result : comm->refuse(result, thread_line());
  } catch (const Error& error) {
    return comm->refuse(twRemoteError, error.what());
  } catch (const std::exception& error) {
    return comm->refuse(twInternalError, error.what());
  }
}

twResult_t twCommGetStats(twComm_t comm, twStats_t* stats) {
  if (stats == nullptr) return refuse(comm, twInvalidArgument, "twCommGetStats: the pointer is null");
  return operate("twCommGetStats", comm, [&](comm::Communicator& communicator) {
    const comm::CommStats all = communicator.stats();
    *stats = {all.operations, all.bytes, all.runner.bytes_written, all.runner.bytes_copied};
    if (comm->gpu() != nullptr) {
      const cuda::Communicator::Journal of_gpu = comm->gpu()->journal();
      stats->operations += of_gpu.operations;
      stats->bytes += of_gpu.bytes;
      stats->bytesWritten += comm->gpu()->carried().bytes_written;
      stats->bytesCopied += comm->gpu()->carried().bytes_copied;
    }
    return twSuccess;
  });
}

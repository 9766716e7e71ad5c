// Tensorwire for C++20: the C API (tensorwire.h, which documents the calls) with an owner of the communicator, spans
// instead of pointers and counts, and exceptions instead of results. Header only; nothing is hidden: native() gives the
// C handle. A Communicator owns its handle; like it, it is used by one thread at a time.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "tensorwire/tensorwire.h"

namespace tensorwire {

/// A call that failed; what() is the line of twGetLastError.
class CommunicatorError : public std::runtime_error {
 public:
  CommunicatorError(twResult_t result, const std::string& line) : std::runtime_error(line), result_(result) {}
  [[nodiscard]] twResult_t result() const noexcept { return result_; }

 private:
  twResult_t result_;
};

/// 16-bit floating-point elements as they lie in memory. Any other type of that layout can be used by specialising
/// data_type_of.
enum class Float16 : std::uint16_t {};
enum class Bfloat16 : std::uint16_t {};

template <typename T>
struct data_type_of;
template <>
struct data_type_of<float> {
  static constexpr twDataType_t value = twFloat32;
};
template <>
struct data_type_of<Float16> {
  static constexpr twDataType_t value = twFloat16;
};
template <>
struct data_type_of<Bfloat16> {
  static constexpr twDataType_t value = twBfloat16;
};

/// A type that collectives reduce.
template <typename T>
concept Element = requires {
  { data_type_of<T>::value } -> std::convertible_to<twDataType_t>;
};

[[nodiscard]] inline twUniqueId make_unique_id() {
  twUniqueId id;
  if (const twResult_t result = twGetUniqueId(&id); result != twSuccess) {
    throw CommunicatorError{result, twGetLastError(nullptr)};
  }
  return id;
}

class Communicator {
 public:
  /// By an id that rank 0's process made. @throws CommunicatorError
  Communicator(int ranks, const twUniqueId& id, int rank, const twConfig_t& config = TW_CONFIG_INITIALIZER) {
    check_set_up(twCommInitRankConfig(&comm_, ranks, id, rank, &config));
  }
  /// The ranks of torchrun, mpirun or srun. @throws CommunicatorError
  [[nodiscard]] static Communicator from_env(const twConfig_t& config = TW_CONFIG_INITIALIZER) {
    Communicator made;
    made.check_set_up(twCommInitFromEnv(&made.comm_, &config));
    return made;
  }
  ~Communicator() { static_cast<void>(twCommDestroy(comm_)); }
  Communicator(Communicator&& other) noexcept : comm_(std::exchange(other.comm_, nullptr)) {}
  Communicator& operator=(Communicator&& other) noexcept {
    std::swap(comm_, other.comm_);
    return *this;
  }

  [[nodiscard]] int rank() const noexcept {
    int rank = -1;
    static_cast<void>(twCommUserRank(comm_, &rank));
    return rank;
  }
  [[nodiscard]] int size() const noexcept {
    int ranks = 0;
    static_cast<void>(twCommCount(comm_, &ranks));
    return ranks;
  }
  [[nodiscard]] twComm_t native() const noexcept { return comm_; }

  /// In place: the data of all ranks, element by element. @throws CommunicatorError
  template <Element T>
  void all_reduce(std::span<T> data, twRedOp_t op = twSum) {
    check(twAllReduce(data.data(), data.data(), data.size(), data_type_of<T>::value, op, comm_, nullptr));
  }
  /// @param out as long as `in`, and apart from it. @throws CommunicatorError
  template <Element T>
  void all_reduce(std::span<const T> in, std::span<T> out, twRedOp_t op = twSum) {
    check_length(out.size() == in.size(), "all_reduce: the output is not as long as the input");
    check(twAllReduce(in.data(), out.data(), in.size(), data_type_of<T>::value, op, comm_, nullptr));
  }

  /// Waits for the peers and gives everything back; ~Communicator does it where this was not called.
  void finalize() { check(twCommFinalize(comm_)); }
  /// From any thread: operations under way, here and elsewhere, fail.
  void abort() noexcept { static_cast<void>(twCommAbort(comm_)); }
  /// The error that ended this communicator, or twSuccess, or twInProgress.
  [[nodiscard]] twResult_t async_error() const noexcept {
    twResult_t state = twInvalidArgument;
    static_cast<void>(twCommGetAsyncError(comm_, &state));
    return state;
  }

 private:
  Communicator() = default;

  void check(twResult_t result) const {
    if (result != twSuccess) throw CommunicatorError{result, twGetLastError(comm_)};
  }
  static void check_set_up(twResult_t result) {
    if (result != twSuccess && result != twInProgress) throw CommunicatorError{result, twGetLastError(nullptr)};
  }
  static void check_length(bool fits, const char* line) {
    if (!fits) throw CommunicatorError{twInvalidArgument, line};
  }

  twComm_t comm_ = nullptr;
};

}  // namespace tensorwire

// Tensorwire for C++20: the C API (tensorwire.h, which documents the calls) with an owner of the communicator, spans
// instead of pointers and counts, and exceptions instead of results. Header only; nothing is hidden: native() gives the
// C handle. A Communicator owns its handle; like it, it is used by one thread at a time.
#pragma once

#include <concepts>
#include <cstddef>
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
struct data_type_of<std::int32_t> {
  static constexpr twDataType_t value = twInt32;
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

  /// @param in one block for each rank, as long as `out`. @throws CommunicatorError
  template <Element T>
  void reduce_scatter(std::span<const T> in, std::span<T> out, twRedOp_t op = twSum) {
    check_length(in.size() == out.size() * ranks(), "reduce_scatter: the input is not one output for each rank");
    check(twReduceScatter(in.data(), out.data(), out.size(), data_type_of<T>::value, op, comm_, nullptr));
  }
  /// @param out room for one input of each rank. @throws CommunicatorError
  template <Element T>
  void all_gather(std::span<const T> in, std::span<T> out) {
    check_length(out.size() == in.size() * ranks(), "all_gather: the output is not one input for each rank");
    check(twAllGather(in.data(), out.data(), in.size(), data_type_of<T>::value, comm_, nullptr));
  }
  /// In place: what `root` has. @throws CommunicatorError
  template <Element T>
  void broadcast(std::span<T> data, int root) {
    check(twBroadcast(data.data(), data.data(), data.size(), data_type_of<T>::value, root, comm_, nullptr));
  }
  /// Blocks of equal size, one for each rank. @throws CommunicatorError
  template <Element T>
  void all_to_all(std::span<const T> in, std::span<T> out) {
    check_length(in.size() == out.size() && in.size() % ranks() == 0, "all_to_all: the tensors are not equal blocks");
    check(twAllToAll(in.data(), out.data(), in.size() / ranks(), data_type_of<T>::value, comm_, nullptr));
  }
  template <Element T>
  void send(std::span<const T> data, int peer) {
    check(twSend(data.data(), data.size(), data_type_of<T>::value, peer, comm_, nullptr));
  }
  template <Element T>
  void receive(std::span<T> data, int peer) {
    check(twRecv(data.data(), data.size(), data_type_of<T>::value, peer, comm_, nullptr));
  }
  void barrier() { check(twBarrier(comm_, nullptr)); }

  /// Of the ranks with the same colour, which must not be negative. @throws CommunicatorError
  [[nodiscard]] Communicator split(int color, int key) {
    Communicator made;
    check(twCommSplit(comm_, color, key, &made.comm_, nullptr));
    return made;
  }

  /// Without the `excluded` ranks; this communicator is over then. See twCommShrink. @throws CommunicatorError
  [[nodiscard]] Communicator shrink(std::span<const int> excluded, int flags = TW_SHRINK_DEFAULT) {
    Communicator made;
    check(twCommShrink(comm_, excluded.data(), static_cast<int>(excluded.size()), &made.comm_, nullptr, flags));
    return made;
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

  [[nodiscard]] std::size_t ranks() const noexcept { return static_cast<std::size_t>(size()); }

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

/// What is asked for while it lives runs together at end(): see twGroupStart.
class Group {
 public:
  Group() { static_cast<void>(twGroupStart()); }
  ~Group() {
    if (open_) static_cast<void>(twGroupEnd());
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  /// @throws CommunicatorError whose line is in the communicator that failed, or this thread's.
  void end() {
    open_ = false;
    if (const twResult_t result = twGroupEnd(); result != twSuccess) {
      throw CommunicatorError{result, twGetErrorString(result)};
    }
  }

 private:
  bool open_ = true;
};

}  // namespace tensorwire

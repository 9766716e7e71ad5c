#include "softhca/host_memory.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <mutex>

#include "base/error.hpp"
#include "wire/icrc.hpp"

namespace tensorwire::softhca {

namespace {

/// The guard of the copy that this thread is in, or null. volatile: read by a signal handler of the same thread.
thread_local sigjmp_buf* volatile t_guard = nullptr;

struct sigaction g_previous_segv;
struct sigaction g_previous_bus;

/// Hands a fault that is not ours to whoever would have had it.
void pass_on(int signal_number, siginfo_t* info, void* context) {
  const struct sigaction& previous = signal_number == SIGSEGV ? g_previous_segv : g_previous_bus;
  if ((previous.sa_flags & SA_SIGINFO) != 0 && previous.sa_sigaction != nullptr) {
    previous.sa_sigaction(signal_number, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal_number);
  } else {
    // The default action: restore it and let the faulting instruction run into it again.
    ::sigaction(signal_number, &previous, nullptr);
  }
}

extern "C" void tensorwire_on_memory_fault(int signal_number, siginfo_t* info, void* context) {
  sigjmp_buf* const guard = t_guard;
  if (guard != nullptr) {
    t_guard = nullptr;
    siglongjmp(*guard, 1);
  }
  pass_on(signal_number, info, context);
}

void install_handlers() {
  struct sigaction action {};
  action.sa_sigaction = tensorwire_on_memory_fault;
  // NODEFER: the handler is left by a jump, so the signal must not stay blocked.
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  if (::sigaction(SIGSEGV, &action, &g_previous_segv) != 0 || ::sigaction(SIGBUS, &action, &g_previous_bus) != 0) {
    throw system_error("install the memory fault handlers", errno);
  }
}

/// Consumers poll the last bytes of a message: those are stored after all others, one by one, each visible in its turn.
void copy_ascending(std::byte* to, std::span<const std::byte> from) noexcept {
  constexpr std::size_t kTailBytes = 16;
  const std::size_t body = from.size() - std::min(from.size(), kTailBytes);
  std::memcpy(to, from.data(), body);
  for (std::size_t i = body; i < from.size(); ++i) {
    std::atomic_ref<std::byte>{to[i]}.store(from[i], std::memory_order_release);
  }
}

/// Runs `copy` and says whether it came through. `copy` must own nothing that needs a destructor: a fault jumps out.
template <typename Copy>
bool guarded(Copy copy) noexcept {
  sigjmp_buf guard;
  if (sigsetjmp(guard, 0) != 0) return false;
  t_guard = &guard;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  copy();
  std::atomic_signal_fence(std::memory_order_seq_cst);
  t_guard = nullptr;
  return true;
}

}  // namespace

HostMemory::HostMemory() {
  static std::once_flag once;
  std::call_once(once, install_handlers);
}

bool HostMemory::load(std::uint64_t address, std::span<std::byte> to, std::uint32_t* crc) noexcept {
  if (to.empty()) return true;
  const std::span<const std::byte> from{reinterpret_cast<const std::byte*>(address), to.size()};
  return guarded([&]() noexcept {
    if (crc != nullptr) {
      *crc = wire::crc_copy(*crc, to.data(), from);
    } else {
      std::memcpy(to.data(), from.data(), from.size());
    }
  });
}

bool HostMemory::store(std::uint64_t address, std::span<const std::byte> from, std::uint32_t* crc) noexcept {
  if (from.empty()) return true;
  auto* const to = reinterpret_cast<std::byte*>(address);
  return guarded([&]() noexcept {
    if (crc != nullptr) {
      *crc = wire::crc_copy(*crc, to, from);
    } else {
      copy_ascending(to, from);
    }
  });
}

bool HostMemory::atomic(std::uint64_t address, const transport::AtomicOperation& operation,
                        std::uint64_t& original) noexcept {
  return guarded(
      [&]() noexcept { original = transport::apply_atomic(*reinterpret_cast<std::uint64_t*>(address), operation); });
}

}  // namespace tensorwire::softhca

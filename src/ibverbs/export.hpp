// How a function of this room becomes a symbol of the drop-in library, and how it reports failure: exceptions of the
// HCA's set-up calls end here, as errno and, where they carry a reason, one line on stderr.
#pragma once

#include <cerrno>
#include <new>
#include <string_view>

#include "base/error.hpp"
#include "base/log.hpp"

/// A function that programs link to; its version is in abi.map.
#define TENSORWIRE_VERB extern "C" __attribute__((visibility("default")))

namespace tensorwire::ibverbs {

/// Verbs that return a pointer fail with null and errno.
template <typename T = void>
[[nodiscard]] T* fail(int errno_value) noexcept {
  errno = errno_value;
  return nullptr;
}

/// Verbs of libibverbs that return -1 set errno as well.
[[nodiscard]] inline int minus_one(int errno_value) noexcept {
  errno = errno_value;
  return -1;
}

/// Says once per call site, at level info, which feature a program asked for in vain; returns EOPNOTSUPP.
int not_supported(std::string_view feature) noexcept;

/// Runs a set-up step that may throw; an exception becomes null and errno (`on_error` for an Error, whose line is
/// logged).
template <typename Function>
[[nodiscard]] auto guarded(int on_error, Function&& function) noexcept -> decltype(function()) {
  try {
    return function();
  } catch (const Error& error) {
    log_warn(error.what());
    errno = on_error;
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
  } catch (const std::exception& error) {
    log_warn(error.what());
    errno = on_error;
  }
  return nullptr;
}

}  // namespace tensorwire::ibverbs

// The rule that an object is destroyed only when every event that was handed out for it is acknowledged, on the mutex
// and condition that verbs.h puts into ibv_cq and ibv_qp.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <string_view>

namespace tensorwire::ibverbs {

void init_acknowledgement(pthread_mutex_t& mutex, pthread_cond_t& condition) noexcept;
void destroy_acknowledgement(pthread_mutex_t& mutex, pthread_cond_t& condition) noexcept;

/// Adds `events` to `counter` and wakes who waits for it.
void acknowledge(pthread_mutex_t& mutex, pthread_cond_t& condition, std::uint32_t& counter, unsigned events) noexcept;

/// Waits until `counter` has reached `reported`. Returns 0; or EBUSY after 60 s, with one line that names `object`: the
/// program forgot to acknowledge.
[[nodiscard]] int await_acknowledgement(pthread_mutex_t& mutex, pthread_cond_t& condition, const std::uint32_t& counter,
                                        std::uint32_t reported, std::string_view object) noexcept;

}  // namespace tensorwire::ibverbs

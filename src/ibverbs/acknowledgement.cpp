#include "ibverbs/acknowledgement.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <ctime>

#include "base/log.hpp"

namespace tensorwire::ibverbs {

namespace {
constexpr time_t kPatienceSeconds = 60;
}

void init_acknowledgement(pthread_mutex_t& mutex, pthread_cond_t& condition) noexcept {
  pthread_mutex_init(&mutex, nullptr);
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&condition, &attributes);
  pthread_condattr_destroy(&attributes);
}

void destroy_acknowledgement(pthread_mutex_t& mutex, pthread_cond_t& condition) noexcept {
  pthread_cond_destroy(&condition);
  pthread_mutex_destroy(&mutex);
}

void acknowledge(pthread_mutex_t& mutex, pthread_cond_t& condition, std::uint32_t& counter, unsigned events) noexcept {
  pthread_mutex_lock(&mutex);
  counter += events;
  pthread_cond_broadcast(&condition);
  pthread_mutex_unlock(&mutex);
}

int await_acknowledgement(pthread_mutex_t& mutex, pthread_cond_t& condition, const std::uint32_t& counter,
                          std::uint32_t reported, std::string_view object) noexcept {
  timespec deadline{};
  clock_gettime(CLOCK_MONOTONIC, &deadline);
  deadline.tv_sec += kPatienceSeconds;
  pthread_mutex_lock(&mutex);
  int result = 0;
  while (counter != reported && result == 0) result = pthread_cond_timedwait(&condition, &mutex, &deadline);
  const std::uint32_t acknowledged = counter;
  pthread_mutex_unlock(&mutex);
  if (acknowledged == reported) return 0;
  log_warn(fmt::format("destroy {}: {} of its {} events were never acknowledged. Acknowledge every event that was read",
                       object, reported - acknowledged, reported));
  return EBUSY;
}

}  // namespace tensorwire::ibverbs

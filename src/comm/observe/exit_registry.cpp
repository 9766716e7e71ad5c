#include "comm/observe/exit_registry.hpp"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "comm/observe/observer.hpp"

namespace tensorwire::comm {

namespace {

struct Registry {
  std::mutex mutex;
  std::vector<Observer*> observers;
};

/// Never destroyed: communicators may go after static objects.
Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

void at_exit() {
  const std::scoped_lock lock{registry().mutex};
  for (Observer* observer : registry().observers) observer->process_exits();
  registry().observers.clear();
}

}  // namespace

void exit_registry_add(Observer& observer) {
  static const int registered = std::atexit(at_exit);
  (void)registered;
  const std::scoped_lock lock{registry().mutex};
  registry().observers.push_back(&observer);
}

void exit_registry_remove(Observer& observer) noexcept {
  const std::scoped_lock lock{registry().mutex};
  std::erase(registry().observers, &observer);
}

}  // namespace tensorwire::comm

// The Hcas of this process: who shares which, and what becomes of them around fork.
#include "softhca/hca_open.hpp"

#include <pthread.h>

#include <cerrno>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>

#include "base/error.hpp"

namespace tensorwire::softhca {

namespace {

/// Leaked on purpose: Hcas of static objects may outlive any static registry.
struct Registry {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Hca>> shared;  ///< by device
  std::set<HcaImpl*> live;
};

Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

void prepare_fork() noexcept {
  registry().mutex.lock();
  for (HcaImpl* hca : registry().live) hca->before_fork();
}

void finish_fork_in_parent() noexcept { registry().mutex.unlock(); }

void finish_fork_in_child() noexcept {
  for (HcaImpl* hca : registry().live) hca->after_fork_in_child();
  registry().live.clear();
  registry().shared.clear();  // the child may open Hcas of its own
  registry().mutex.unlock();
}

/// A program may end with the message that it waited for: the peer gets its acknowledgement.
void answer_before_exit() {
  if (!registry().mutex.try_lock())
    return;  // somebody opens or closes a device at this moment: nothing is worth a wait
  for (HcaImpl* hca : registry().live) hca->let_out_held();
  registry().mutex.unlock();
}

/// The registry's mutex is held.
std::shared_ptr<Hca> make(const DeviceInfo& device, AddressClaim claim, HcaOptions options) {
  static const int fork_handlers = pthread_atfork(prepare_fork, finish_fork_in_parent, finish_fork_in_child);
  if (fork_handlers != 0) throw system_error("install the fork handlers", fork_handlers);
  [[maybe_unused]] static const int exit_handler = std::atexit(answer_before_exit);
  std::unique_ptr<HcaImpl> hca = std::make_unique<HcaImpl>(device, std::move(claim), std::move(options));
  registry().live.insert(hca.get());
  return {hca.release(), [](HcaImpl* dying) {
            {
              const std::lock_guard guard{registry().mutex};
              registry().live.erase(dying);
            }
            // In a fork's child its links share memory with peers that are the parent's: touch nothing, free nothing.
            if (!dying->dead()) delete dying;
          }};
}

}  // namespace

std::shared_ptr<Hca> Hca::open(const DeviceInfo& device) {
  const std::lock_guard guard{registry().mutex};
  std::weak_ptr<Hca>& slot = registry().shared[device.name + "/" + wire::ipv4_text(device.ipv4)];
  if (std::shared_ptr<Hca> running = slot.lock()) return running;
  HcaOptions options = HcaOptions::from_environment();
  std::shared_ptr<Hca> hca = make(device, claim_address(device), std::move(options));
  slot = hca;
  return hca;
}

std::shared_ptr<Hca> open_at(const DeviceInfo& device, std::uint32_t ipv4, HcaOptions options) {
  const std::lock_guard guard{registry().mutex};
  std::optional<AddressClaim> claim = try_claim(ipv4);
  if (!claim) throw system_error("open " + wire::ipv4_text(ipv4) + ": the address is owned by an Hca", EBUSY);
  return make(device, std::move(*claim), std::move(options));
}

}  // namespace tensorwire::softhca

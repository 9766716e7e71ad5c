// Operations on memory of GPUs that do not reach each other: a kernel for each call, and for each rail
// (TENSORWIRE_RAILS) a proxy thread and a communicator over a device of its own (cuda/relay.hpp, comm/gpu/proxy.hpp).
// One thread at a time, but for abort() and failure().
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/group.hpp"
#include "comm/communicator.hpp"
#include "comm/gpu/carried.hpp"
#include "comm/gpu/proxy.hpp"
#include "cuda/communicator.hpp"
#include "cuda/relay.hpp"

namespace tensorwire::comm {

class Proxied {
 public:
  /// A collective call. @param divisor of averages; 0: the number of ranks @throws Error
  Proxied(bootstrap::Group& group, int device, const CommOptions& options, std::uint32_t divisor = 0);
  Proxied(const Proxied&) = delete;
  Proxied& operator=(const Proxied&) = delete;
  ~Proxied();

  /// Whether launch() knows the call: blocks of equal size.
  [[nodiscard]] static bool knows(const Call& call) noexcept { return call.counts.empty(); }
  cuda::Status launch(const Call& call, cuda::Stream stream) noexcept;
  /// For all-reduces in steps.
  [[nodiscard]] cuda::Relay& relay() noexcept { return *relay_; }
  [[nodiscard]] const cuda::Relay& relay() const noexcept { return *relay_; }

  /// As the first rail counts: it takes part in every operation.
  [[nodiscard]] const Proxy& first_proxy() const noexcept { return *rails_.front().proxy; }
  /// Of all rails.
  [[nodiscard]] Carried carried() const noexcept;
  /// This rank gives up, or `peer` is gone.
  void abort(int peer) noexcept;
  [[nodiscard]] std::optional<CommError> failure() const;

 private:
  struct Rail {
    std::string device;                     ///< "": the communicator's
    std::unique_ptr<Communicator> carrier;  ///< its queue pairs end before the windows
    std::unique_ptr<Proxy> proxy;
  };

  /// With windows on the GPU where all ranks' HCAs reach them there.
  void make_relay(int device, const CommOptions& options);
  /// Empty, or why an HCA does not take its windows.
  [[nodiscard]] std::string register_windows();
  void forget_windows() noexcept;
  /// Whether, and from which size on, all-reduces wait in the stream: as all ranks can.
  void agree_on_stream_waits();

  bootstrap::Group& group_;
  const std::uint32_t divisor_;
  std::unique_ptr<cuda::Relay> relay_;
  std::vector<Rail> rails_;  ///< last: they use the others
};

}  // namespace tensorwire::comm

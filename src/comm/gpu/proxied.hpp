// Operations on memory of GPUs that do not reach each other: a kernel and a proxy thread for each (cuda/relay.hpp,
// comm/gpu/proxy.hpp), over a communicator of their own. One thread at a time, but for abort() and failure().
#pragma once

#include <memory>
#include <optional>

#include "bootstrap/group.hpp"
#include "comm/communicator.hpp"
#include "comm/gpu/proxy.hpp"
#include "cuda/communicator.hpp"
#include "cuda/relay.hpp"

namespace tensorwire::comm {

class Proxied {
 public:
  /// A collective call. @throws Error
  Proxied(bootstrap::Group& group, int device, const CommOptions& options);
  Proxied(const Proxied&) = delete;
  Proxied& operator=(const Proxied&) = delete;
  ~Proxied();

  /// Whether launch() knows the call: blocks of equal size.
  [[nodiscard]] static bool knows(const Call& call) noexcept { return call.counts.empty(); }
  cuda::Status launch(const Call& call, cuda::Stream stream) noexcept;
  /// An all-reduce, then one kernel that does the rest.
  cuda::Status launch(const cuda::AddNorm& what, collective::DType dtype, cuda::Stream stream) noexcept;

  [[nodiscard]] const Proxy& proxy() const noexcept { return *proxy_; }
  /// This rank gives up, or `peer` is gone.
  void abort(int peer) noexcept;
  [[nodiscard]] std::optional<CommError> failure() const;

 private:
  /// With windows on the GPU where all ranks' HCAs reach them there.
  void make_relay(int device, const CommOptions& options);
  /// Empty, or why the HCA does not take the windows.
  [[nodiscard]] std::string register_windows();

  bootstrap::Group& group_;
  cuda::Communicator alone_;               ///< of this rank only: what follows an all-reduce
  std::unique_ptr<Communicator> carrier_;  ///< its queue pairs end before the windows
  std::unique_ptr<cuda::Relay> relay_;
  std::unique_ptr<Proxy> proxy_;  ///< last: it uses the others
};

}  // namespace tensorwire::comm

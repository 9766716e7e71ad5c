// A protection domain: queue pairs and memory regions of one domain may touch each other. Owns the ibv_pd; regions and
// queue pairs share ownership of it.
#pragma once

#include <memory>

#include "verbs/context.hpp"

namespace tensorwire::verbs {

class ProtectionDomain {
 public:
  /// @throws Error when the device refuses.
  [[nodiscard]] static std::shared_ptr<ProtectionDomain> create(std::shared_ptr<Context> context);
  ~ProtectionDomain();
  ProtectionDomain(const ProtectionDomain&) = delete;
  ProtectionDomain& operator=(const ProtectionDomain&) = delete;

  [[nodiscard]] ibv_pd* raw() const noexcept { return pd_; }
  [[nodiscard]] const std::shared_ptr<Context>& context() const noexcept { return context_; }

 private:
  ProtectionDomain(std::shared_ptr<Context> context, ibv_pd* pd) noexcept;

  std::shared_ptr<Context> context_;
  ibv_pd* pd_;
};

}  // namespace tensorwire::verbs

#include "verbs/protection_domain.hpp"

#include <cerrno>
#include <utility>

#include "base/error.hpp"

namespace tensorwire::verbs {

std::shared_ptr<ProtectionDomain> ProtectionDomain::create(std::shared_ptr<Context> context) {
  errno = 0;
  ibv_pd* pd = context->call().alloc_pd(context->raw());
  if (pd == nullptr) throw system_error("allocate a protection domain on " + context->name(), errno);
  return std::shared_ptr<ProtectionDomain>{new ProtectionDomain{std::move(context), pd}};
}

ProtectionDomain::ProtectionDomain(std::shared_ptr<Context> context, ibv_pd* pd) noexcept
    : context_(std::move(context)), pd_(pd) {}

ProtectionDomain::~ProtectionDomain() { context_->call().dealloc_pd(pd_); }

}  // namespace tensorwire::verbs

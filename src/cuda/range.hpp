// A named range on the calling thread for NVIDIA's profilers (NVTX), around a launch or its capture: the kernel is
// shown under the operation's name. Without a profiler it costs a few nanoseconds.
#pragma once

#include <nvtx3/nvToolsExt.h>

#include "cuda/journal.hpp"

namespace tensorwire::cuda {

class Range {
 public:
  explicit Range(const Operation& operation) noexcept {
    static const nvtxDomainHandle_t domain = nvtxDomainCreateA("tensorwire");
    domain_ = domain;
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    attributes.payload.ullValue = operation.bytes;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = name_of(operation.kind).data();  // of literals
    nvtxDomainRangePushEx(domain_, &attributes);
  }
  ~Range() { nvtxDomainRangePop(domain_); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  nvtxDomainHandle_t domain_;
};

}  // namespace tensorwire::cuda

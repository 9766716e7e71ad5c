// The direct verbs of direct.h.
#include "ibverbs/direct.h"

#include <cstring>
#include <string>

#include "ibverbs/export.hpp"
#include "ibverbs/objects.hpp"
#include "ibverbs/raw_enum.hpp"

namespace tw = tensorwire::ibverbs;

TENSORWIRE_VERB int twdv_set_link(ibv_qp* qp, twdv_link link) {
  if (tw::raw(link) > TWDV_LINK_PACKETS) return EINVAL;
  tw::QueuePair& pair = tw::of(qp);
  using tensorwire::softhca::LinkChoice;
  return pair.hca->set_link(pair.engine, link == TWDV_LINK_PACKETS ? LinkChoice::kPackets : LinkChoice::kAuto);
}

TENSORWIRE_VERB int twdv_link_description(ibv_qp* qp, char* text, std::size_t size) {
  if (size == 0) return EINVAL;
  try {
    tw::QueuePair& pair = tw::of(qp);
    const std::string description = pair.hca->link_description(pair.engine);
    const std::size_t length = std::min(description.size(), size - 1);
    std::memcpy(text, description.data(), length);
    text[length] = '\0';
    return 0;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

TENSORWIRE_VERB int twdv_counter(ibv_context* context, const char* name, std::uint64_t* value) {
  try {
    for (const auto& [counter, count] : tw::of(context).hca->counters()) {
      if (counter != name) continue;
      *value = count;
      return 0;
    }
    return ENOENT;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

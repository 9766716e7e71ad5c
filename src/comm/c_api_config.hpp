// A twConfig_t as options of the C++ communicator.
#pragma once

#include "comm/communicator.hpp"
#include "tensorwire/tensorwire.h"

/// @throws tensorwire::Error naming the field that makes no sense.
[[nodiscard]] tensorwire::comm::CommOptions options_from(const twConfig_t& config);

/// Whether set-up is to be over when the call returns. @throws tensorwire::Error
[[nodiscard]] bool blocks(const twConfig_t& config);

// The words with which a rank of a star is let in: the bootstrap's own, for a job of another name, so that a star and a
// communicator of the same job that try the same port never take each other for their own.
#pragma once

#include "bootstrap/messages.hpp"
#include "bootstrap/options.hpp"
#include "bootstrap/rendezvous.hpp"

namespace tensorwire::cli {

using StarGreeting = bootstrap::Greeting;

[[nodiscard]] inline std::uint64_t star_job(const bootstrap::GroupOptions& options) {
  return bootstrap::job_hash(options.job + " star");
}

[[nodiscard]] inline StarGreeting greeting_of(const bootstrap::GroupOptions& options) {
  StarGreeting greeting;
  greeting.master_port = options.master_port;
  greeting.job = star_job(options);
  greeting.wants_secret = !options.secret.empty();
  greeting.nonce = bootstrap::fresh_nonce();
  return greeting;
}

}  // namespace tensorwire::cli

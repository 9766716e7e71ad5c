#include "bootstrap/secret.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstring>

#include "base/error.hpp"
#include "base/random.hpp"

namespace tensorwire::bootstrap {

Nonce fresh_nonce() {
  Nonce nonce;
  for (std::size_t at = 0; at < nonce.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t bits = entropy64();
    std::memcpy(nonce.data() + at, &bits, sizeof bits);
  }
  return nonce;
}

Proof prove(const std::string& secret, std::span<const std::byte> message) {
  Proof proof{};
  if (secret.empty()) return proof;
  // The machine's openssl.cnf has no say here: it could name providers that this static copy cannot load.
  OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
  unsigned int length = 0;
  const unsigned char* done = HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                                   reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                                   reinterpret_cast<unsigned char*>(proof.data()), &length);
  if (done == nullptr || length != proof.size()) throw Error{"compute HMAC-SHA256", "OpenSSL refused"};
  return proof;
}

bool same_proof(const Proof& a, const Proof& b) noexcept { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

}  // namespace tensorwire::bootstrap

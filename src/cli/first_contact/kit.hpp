// The archive of a first contact while it grows: a folder beside it, to which each step adds its files as soon as it
// has them, so that an interrupted run has something to pack.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/first_contact/scrub.hpp"
#include "host/pseudonyms.hpp"

namespace tensorwire::cli {

class Kit {
 public:
  /// @param archive  "first-contact.tar.gz"; its name without the ending is the folder's, within the archive too
  /// @throws Error when the archive is there already, or the folder cannot be made.
  explicit Kit(const std::string& archive);
  /// Removes the folder, unless it could not be packed.
  ~Kit();
  Kit(const Kit&) = delete;
  Kit& operator=(const Kit&) = delete;

  /// From now on hosts and addresses have other names.
  void use_pseudonyms(Replacements names, const std::string& key);
  [[nodiscard]] const Replacements& names() const noexcept { return names_; }

  enum class Addresses { kAsTheyAre, kDone };
  /// @param name  of the file, with a folder before it where wanted
  /// @param addresses  kDone: whoever made the text has put pseudonyms in their place
  void add(const std::string& name, const std::string& text, Addresses addresses = Addresses::kAsTheyAre);

  /// Packs the folder. @return what became of it, in a line. @throws Error: the folder stays, and the line says where
  std::string pack();

 private:
  std::string archive_;
  std::string folder_;
  std::vector<std::string> secrets_;
  Replacements names_;
  std::optional<host::Pseudonyms> pseudonyms_;
  bool keep_folder_ = false;
};

}  // namespace tensorwire::cli

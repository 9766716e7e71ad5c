// A recording: every question that was put to a host, with its answer. It is one text file, a line each, so that it can
// be read, compared and attached to a bug report. docs/doctor.md describes the format.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "host/tree/tree.hpp"

namespace tensorwire::host {

class Recording final : public Tree {
 public:
  /// `missing` is the error of what was never put in: ENOENT where the recording is known to be complete.
  explicit Recording(int missing = kNotRecorded) : missing_(missing) {}
  Recording(Recording&& other) noexcept : missing_(other.missing_), answers_(std::move(other.answers_)) {}

  [[nodiscard]] Answer answer(Ask kind, const std::string& name) override;

  void put(Ask kind, std::string_view name, Answer answer);
  void remove(Ask kind, std::string_view name);
  /// Lets `change` alter every answer; the answer goes when it returns false.
  void filter(const std::function<bool(Ask kind, std::string_view name, Answer& answer)>& change);
  [[nodiscard]] std::size_t size() const noexcept { return answers_.size(); }

  /// Sorted, so that equal hosts give equal text.
  [[nodiscard]] std::string to_text() const;
  /// @throws Error naming `source` and the line that is no part of a recording.
  [[nodiscard]] static Recording from_text(std::string_view text, std::string_view source);

 private:
  int missing_;
  std::unordered_map<std::string, Answer> answers_;  ///< the key is the mark of the kind and the name
};

/// The name of the file in the folder that `tensorwire doctor record` makes.
inline constexpr std::string_view kRecordingFile = "tensorwire-host.txt";

/// Answers as `inner` does, and keeps what was asked.
class Recorder final : public Tree {
 public:
  explicit Recorder(Tree& inner) : inner_(inner) {}

  [[nodiscard]] Answer answer(Ask kind, const std::string& name) override;
  [[nodiscard]] Recording& recording() noexcept { return recording_; }

 private:
  Tree& inner_;
  Recording recording_;
};

}  // namespace tensorwire::host
